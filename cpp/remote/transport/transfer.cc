#include "remote/transport/transfer.h"

#include <sys/socket.h>

#include <algorithm>
#include <cstring>
#include <new>
#include <string_view>
#include <utility>

#include "base/errors.h"

namespace torchparquet {
namespace {

// Half of it takes a tenth more of a core for 8 MiB ranges, twice as much no less.
constexpr int64_t kBufferBytes = int64_t{256} << 10;
constexpr int64_t kMaxRedirects = 5;
// Messages longer than this are not worth the connection.
constexpr int64_t kMaxTextBytes = int64_t{64} << 10;

template <typename Value>
void Set(CURL* handle, CURLoption option, Value value) {
  const CURLcode code = Curl().easy_setopt(handle, option, value);
  if (code == CURLE_OUT_OF_MEMORY) throw std::bad_alloc();
  if (code != CURLE_OK) {
    throw Error(ErrorKind::kInternal,
                "libcurl refuses an option: " + std::string(Curl().easy_strerror(code)));
  }
}

// Child processes do not inherit connections.
curl_socket_t OpenSocket(void* /*data*/, curlsocktype /*purpose*/,
                         curl_sockaddr* address) {
  return socket(address->family, address->socktype | SOCK_CLOEXEC, address->protocol);
}

// True for failures that another try would meet too.
bool IsPermanent(CURLcode code) {
  switch (code) {
    case CURLE_URL_MALFORMAT:
    case CURLE_NOT_BUILT_IN:
    case CURLE_BAD_FUNCTION_ARGUMENT:
    case CURLE_PEER_FAILED_VERIFICATION:
    case CURLE_SSL_CACERT_BADFILE:
    case CURLE_SSL_CERTPROBLEM:
    case CURLE_SSL_ENGINE_NOTFOUND:
    case CURLE_SSL_CIPHER:
      return true;
    default:
      return false;
  }
}

std::string UrlPart(CURLU* url, CURLUPart part, unsigned flags) {
  char* text = nullptr;
  const CURLUcode code = Curl().url_get(url, part, &text, flags);
  if (code == CURLUE_OUT_OF_MEMORY) throw std::bad_alloc();
  if (code != CURLUE_OK) return {};
  std::string out(text);
  Curl().free(text);
  return out;
}

}  // namespace

void InitCurl() {
  static const CURLcode code = Curl().global_init(CURL_GLOBAL_DEFAULT);
  if (code != CURLE_OK) {
    throw Error(ErrorKind::kInternal,
                "libcurl cannot begin: " + std::string(Curl().easy_strerror(code)));
  }
}

std::string OriginOf(const std::string& url) {
  const std::unique_ptr<CURLU, void (*)(CURLU*)> parsed(Curl().url(), Curl().url_cleanup);
  if (parsed == nullptr) throw std::bad_alloc();
  const CURLUcode code = Curl().url_set(parsed.get(), CURLUPART_URL, url.c_str(), 0);
  if (code == CURLUE_OUT_OF_MEMORY) throw std::bad_alloc();
  if (code != CURLUE_OK) return {};
  const std::string scheme = UrlPart(parsed.get(), CURLUPART_SCHEME, 0);
  if (scheme != "http" && scheme != "https") return {};
  std::string host = UrlPart(parsed.get(), CURLUPART_HOST, 0);
  std::ranges::transform(host, host.begin(),
                         [](char c) { return c >= 'A' && c <= 'Z' ? char(c + 32) : c; });
  return scheme + "://" + host + ":" +
         UrlPart(parsed.get(), CURLUPART_PORT, CURLU_DEFAULT_PORT);
}

Transfer::Transfer(Owner* owner, const FetchOptions& options, CURLSH* share)
    : owner_(owner), handle_(Curl().easy_init()) {
  if (handle_ == nullptr) throw std::bad_alloc();
  CURL* handle = handle_.get();
  Set(handle, CURLOPT_PRIVATE, static_cast<void*>(this));
  Set(handle, CURLOPT_ERRORBUFFER, error_text_.data());
  Set(handle, CURLOPT_HEADERFUNCTION, &OnHeadLine);
  Set(handle, CURLOPT_HEADERDATA, static_cast<void*>(this));
  Set(handle, CURLOPT_WRITEFUNCTION, &OnPiece);
  Set(handle, CURLOPT_WRITEDATA, static_cast<void*>(this));
  Set(handle, CURLOPT_OPENSOCKETFUNCTION, &OpenSocket);
  Set(handle, CURLOPT_SHARE, share);
  Set(handle, CURLOPT_NOSIGNAL, 1L);
  // Releases before 7.87 do not know it.
  Curl().easy_setopt(handle, CURLOPT_QUICK_EXIT, 1L);
  Set(handle, CURLOPT_PROTOCOLS, CURLPROTO_HTTP | CURLPROTO_HTTPS);
  // Several connections bring more than the streams of one.
  Set(handle, CURLOPT_HTTP_VERSION, CURL_HTTP_VERSION_1_1);
  Set(handle, CURLOPT_SUPPRESS_CONNECT_HEADERS, 1L);
  Set(handle, CURLOPT_HTTP_CONTENT_DECODING, 0L);
  // A key of a store may hold "..".
  Set(handle, CURLOPT_PATH_AS_IS, 1L);
  Set(handle, CURLOPT_BUFFERSIZE, static_cast<long>(kBufferBytes));
  Set(handle, CURLOPT_TCP_KEEPALIVE, 1L);
  Set(handle, CURLOPT_DNS_SHUFFLE_ADDRESSES, 1L);
  Set(handle, CURLOPT_CONNECTTIMEOUT_MS,
      std::max(1L, static_cast<long>(options.connect_seconds * 1000)));
  // Counts from the request on: the time to connect has a limit of its own.
  Set(handle, CURLOPT_LOW_SPEED_LIMIT, static_cast<long>(options.stall_bytes_per_second));
  Set(handle, CURLOPT_LOW_SPEED_TIME, static_cast<long>(options.stall_seconds));
  Set(handle, CURLOPT_USERAGENT, "torchparquet");
}

void Transfer::Begin(Request request, Time now) {
  request_ = std::move(request);
  origin_ = OriginOf(request_.address->url);
  const std::string& chosen = request_.address->ca_file;
  if (!chosen.empty()) {
    Set(handle_.get(), CURLOPT_CAINFO, chosen.c_str());
    Set(handle_.get(), CURLOPT_PROXY_CAINFO, chosen.c_str());
  }
  num_redirects_ = 0;
  is_abandoned_ = false;
  Ask(request_.address->url, now);
}

std::optional<std::string> Transfer::Redirect(Time now) {
  const char* location = nullptr;
  Curl().easy_getinfo(handle_.get(), CURLINFO_REDIRECT_URL, &location);
  if (location == nullptr) return "the store redirects to nowhere";
  if (++num_redirects_ > kMaxRedirects) return "the store redirects too often";
  const char* from = nullptr;
  Curl().easy_getinfo(handle_.get(), CURLINFO_EFFECTIVE_URL, &from);
  // Both strings belong to the handle, which is to change.
  const std::string url = location;
  const std::string origin = OriginOf(url);
  if (origin.empty()) return "the store redirects to another protocol";
  if (OriginOf(from).starts_with("https:") && !origin.starts_with("https:")) {
    return "the store redirects to a connection without encryption";
  }
  Ask(url, now);
  return std::nullopt;
}

void Transfer::AddHeader(const std::string& header) {
  curl_slist* longer = Curl().slist_append(headers_.get(), header.c_str());
  if (longer == nullptr) throw std::bad_alloc();
  (void)headers_.release();
  headers_.reset(longer);
}

void Transfer::Ask(const std::string& url, Time now) {
  const Question& question = request_.question;
  headers_.reset();
  // A host's credentials are no other host's business.
  if (OriginOf(url) == origin_) {
    for (const std::string& header : request_.address->headers) AddHeader(header);
  }
  AddHeader(Text("Range: bytes=", question.range.offset, "-", question.range.end() - 1));
  AddHeader("Accept-Encoding: identity");
  if (question.has_condition) AddHeader("If-Match: " + question.etag);
  Set(handle_.get(), CURLOPT_HTTPHEADER, headers_.get());
  Set(handle_.get(), CURLOPT_URL, url.c_str());
  Set(handle_.get(), CURLOPT_FRESH_CONNECT, request_.is_hedge ? 1L : 0L);

  error_text_.front() = 0;
  answer_ = {};
  verdict_.reset();
  num_text_bytes_ = 0;
  has_body_ = false;
  is_too_long_ = false;
  has_no_memory_ = false;
  begin_ = now;
}

void Transfer::Reset() {
  request_ = {};
  headers_.reset();
}

double Transfer::retry_after_seconds() const {
  curl_off_t seconds = 0;
  Curl().easy_getinfo(handle_.get(), CURLINFO_RETRY_AFTER, &seconds);
  return static_cast<double>(std::max<curl_off_t>(seconds, 0));
}

Verdict Transfer::Result(CURLcode code) {
  using Kind = Verdict::Kind;
  if (has_no_memory_ || code == CURLE_OUT_OF_MEMORY) {
    return {.kind = Kind::kFailure,
            .error = ErrorKind::kOutOfMemory,
            .reason = "out of memory while reading"};
  }
  if (is_too_long_) {
    return {.kind = Kind::kFailure, .reason = "the store sent more bytes than asked for"};
  }
  if (has_body_) {
    if (num_bytes_to_write_ == 0) return {};
    return {.kind = Kind::kAgain, .reason = "the answer broke off: " + Cause(code)};
  }
  if (answer_.status != 0 && (code == CURLE_OK || verdict_)) {
    // A message is whole now.
    Verdict verdict = Judge(answer_, request_.question);
    if (verdict.kind != Kind::kBody) return verdict;
    return {.kind = Kind::kAgain, .reason = "the answer has no bytes"};
  }
  // libcurl also calls an answer that is no HTTP an unsupported protocol.
  const bool is_other = code == CURLE_UNSUPPORTED_PROTOCOL && origin_.empty();
  return {.kind = is_other || IsPermanent(code) ? Kind::kFailure : Kind::kAgain,
          .reason = "the connection failed: " + Cause(code)};
}

std::string Transfer::Cause(CURLcode code) const {
  if (error_text_.front() != 0) return Printable(error_text_.data());
  if (code == CURLE_OK) return "too few bytes";
  return Curl().easy_strerror(code);
}

size_t Transfer::OnHeadLine(char* data, size_t size, size_t count, void* self) noexcept {
  auto* transfer = static_cast<Transfer*>(self);
  try {
    transfer->answer_.AddLine({data, size * count});
    return size * count;
  } catch (const std::bad_alloc&) {
    transfer->has_no_memory_ = true;
    return 0;  // libcurl ends the request
  }
}

size_t Transfer::OnPiece(char* data, size_t size, size_t count, void* self) noexcept {
  auto* transfer = static_cast<Transfer*>(self);
  try {
    const bool goes_on = transfer->Take({data, size * count});
    return goes_on ? size * count : 0;
  } catch (const std::bad_alloc&) {
    transfer->has_no_memory_ = true;
    return 0;
  }
}

bool Transfer::Take(std::string_view piece) {
  if (is_abandoned_) {
    owner_->OnWaste(std::ssize(piece));
    return false;
  }
  if (!verdict_) {
    verdict_ = Judge(answer_, request_.question);
    if (verdict_->kind == Verdict::Kind::kBody) {
      num_bytes_to_skip_ = verdict_->num_bytes_before;
      num_bytes_to_write_ = request_.question.range.num_bytes;
      num_bytes_to_ignore_ = verdict_->num_bytes_after;
      has_body_ = owner_->OnBody(this);
      is_abandoned_ = !has_body_;
    }
  }
  if (has_body_) return TakeBody(piece);
  if (is_abandoned_ || answer_.status < 300) {
    owner_->OnWaste(std::ssize(piece));
    return false;
  }
  num_text_bytes_ += std::ssize(piece);
  answer_.AddText(piece);
  return num_text_bytes_ <= kMaxTextBytes;
}

bool Transfer::TakeBody(std::string_view piece) {
  const auto take = [&](int64_t* num_bytes) {
    const int64_t count = std::min(*num_bytes, std::ssize(piece));
    *num_bytes -= count;
    const std::string_view taken = piece.substr(0, static_cast<size_t>(count));
    piece.remove_prefix(static_cast<size_t>(count));
    return taken;
  };
  if (const auto skipped = take(&num_bytes_to_skip_); !skipped.empty()) {
    owner_->OnWaste(std::ssize(skipped));
  }
  if (const auto wanted = take(&num_bytes_to_write_); !wanted.empty()) {
    FetchJob& fetched = job();
    std::memcpy(fetched.fetch->out() + fetched.num_written, wanted.data(), wanted.size());
    owner_->OnBytes(this, std::ssize(wanted));
  }
  if (const auto ignored = take(&num_bytes_to_ignore_); !ignored.empty()) {
    owner_->OnWaste(std::ssize(ignored));
  }
  if (piece.empty()) return true;
  owner_->OnWaste(std::ssize(piece));
  is_too_long_ = true;
  return false;
}

}  // namespace torchparquet
