#include "remote/http/answer.h"

#include <algorithm>
#include <array>
#include <cctype>
#include <charconv>

namespace torchparquet {
namespace {

using Kind = Verdict::Kind;

constexpr size_t kMaxTextBytes = 2048;
constexpr size_t kMaxShownBytes = 300;
// A store without ranges may send this much more than is wanted.
constexpr int64_t kMaxWastedBytes = int64_t{64} << 10;

std::string_view Trimmed(std::string_view text) {
  const auto is_space = [](char c) {
    return c == ' ' || c == '\t' || c == '\r' || c == '\n';
  };
  while (!text.empty() && is_space(text.front())) text.remove_prefix(1);
  while (!text.empty() && is_space(text.back())) text.remove_suffix(1);
  return text;
}

std::string Lowered(std::string_view text) {
  std::string out(text);
  std::ranges::transform(out, out.begin(), [](unsigned char c) {
    return static_cast<char>(std::tolower(c));
  });
  return out;
}

// Takes a number off the front.
std::optional<int64_t> TakeNumber(std::string_view* text) {
  int64_t number = 0;
  const auto [end, error] =
      std::from_chars(text->data(), text->data() + text->size(), number);
  if (error != std::errc() || number < 0) return std::nullopt;
  text->remove_prefix(static_cast<size_t>(end - text->data()));
  return number;
}

bool TakeChar(char c, std::string_view* text) {
  if (!text->starts_with(c)) return false;
  text->remove_prefix(1);
  return true;
}

struct ContentRange {
  ByteRange range;
  int64_t object_bytes = -1;  // negative: not told
};

// Reads "bytes 0-99/1000" or "bytes 0-99/*".
std::optional<ContentRange> ParseContentRange(std::string_view text) {
  if (!Lowered(text.substr(0, 6)).starts_with("bytes ")) return std::nullopt;
  text.remove_prefix(6);
  const auto first = TakeNumber(&text);
  if (!first || !TakeChar('-', &text)) return std::nullopt;
  const auto last = TakeNumber(&text);
  if (!last || *last < *first || !TakeChar('/', &text)) return std::nullopt;
  ContentRange out{.range = {*first, *last - *first + 1}};
  if (text == "*") return out;
  const auto object_bytes = TakeNumber(&text);
  if (!object_bytes || !text.empty()) return std::nullopt;
  out.object_bytes = *object_bytes;
  return out;
}

// The text between two marks.
std::string_view Between(std::string_view text, std::string_view begin,
                         std::string_view end) {
  const size_t at = text.find(begin);
  if (at == std::string_view::npos) return {};
  text.remove_prefix(at + begin.size());
  return text.substr(0, text.find(end));
}

// The store's own words, without what it repeats of the request, such as keys.
std::string Message(const Answer& answer) {
  std::string out = Text("HTTP ", answer.status);
  const std::string_view code = Between(answer.text, "<Code>", "</Code>");
  const std::string_view message = Between(answer.text, "<Message>", "</Message>");
  std::string shown(Trimmed(answer.text));
  if (!code.empty()) shown = Text(code, ": ", message);
  if (!shown.empty()) out += " (" + Printable(shown, kMaxShownBytes) + ")";
  return out;
}

Verdict Failure(ErrorKind kind, std::string reason) {
  return {.kind = Kind::kFailure, .error = kind, .reason = std::move(reason)};
}

Verdict Changed(std::string_view how) {
  return Failure(ErrorKind::kChanged,
                 "the object changed since the data set was made; make the data set anew "
                 "to read it as it is: " +
                     std::string(how));
}

Verdict JudgePart(const Answer& answer, const Question& question) {
  const auto part = ParseContentRange(answer.content_range);
  if (!part) {
    return Failure(ErrorKind::kIo,
                   "the store answers without a range of bytes: Content-Range '" +
                       Printable(answer.content_range, kMaxShownBytes) + "'");
  }
  if (part->object_bytes >= 0 && question.object_bytes >= 0 &&
      part->object_bytes != question.object_bytes) {
    return Changed(
        Text("it has ", part->object_bytes, " bytes, not ", question.object_bytes));
  }
  const bool is_asked = part->range == question.range;
  const bool is_whole = answer.num_bytes < 0 || answer.num_bytes == part->range.num_bytes;
  if (is_asked && is_whole) return {};
  return {.kind = Kind::kAgain,
          .reason = Text("the store sent other bytes than asked for: Content-Range '",
                         Printable(answer.content_range, kMaxShownBytes),
                         "', Content-Length ", answer.num_bytes)};
}

// The whole object, though a part was asked for.
Verdict JudgeWhole(const Answer& answer, const Question& question) {
  const int64_t object_bytes =
      answer.num_bytes >= 0 ? answer.num_bytes : question.object_bytes;
  if (question.object_bytes >= 0 && object_bytes != question.object_bytes) {
    const std::string sizes = Text(object_bytes, " bytes, not ", question.object_bytes);
    // Stores that are in trouble may send the message of an error as if it were the
    // object.
    if (!question.etag.empty() && answer.etag.empty()) {
      return {.kind = Kind::kAgain,
              .reason = "the store sent something else, of " + sizes};
    }
    return Changed("it has " + sizes);
  }
  const ByteRange& whole = question.whole_range;
  if (object_bytes >= whole.end() && object_bytes - whole.num_bytes <= kMaxWastedBytes) {
    return {.num_bytes_before = question.range.offset,
            .num_bytes_after = object_bytes - question.range.end()};
  }
  return Failure(
      ErrorKind::kIo,
      Text("the store ignores ranges and sends whole objects: copy the file to "
           "a disk, or have it served by a server that answers ranges; it "
           "sends ",
           object_bytes, " bytes"));
}

Verdict JudgeBody(const Answer& answer, const Question& question) {
  const std::string encoding = Lowered(answer.content_encoding);
  // Some stores keep "aws-chunked", which was the framing of the upload.
  if (!encoding.empty() && encoding != "identity" && encoding != "aws-chunked") {
    return Failure(ErrorKind::kIo, "the store encodes the object: Content-Encoding '" +
                                       Printable(encoding, kMaxShownBytes) + "'");
  }
  if (!answer.etag.empty() && !question.etag.empty() &&
      !IsSameETag(answer.etag, question.etag)) {
    return Changed("its ETag is " + Printable(answer.etag, kMaxShownBytes) + ", not " +
                   Printable(question.etag, kMaxShownBytes));
  }
  return answer.status == 206 ? JudgePart(answer, question)
                              : JudgeWhole(answer, question);
}

// S3 answers so to temporary credentials that ended.
bool HasExpired(const Answer& answer) {
  const std::string_view code = Between(answer.text, "<Code>", "</Code>");
  return answer.status == 400 && (code == "ExpiredToken" || code == "RequestExpired" ||
                                  code == "TokenRefreshRequired");
}

}  // namespace

void Answer::AddLine(std::string_view line) {
  line = Trimmed(line);
  if (line.starts_with("HTTP/")) {
    *this = {};
    line.remove_prefix(std::min(line.find(' '), line.size()));
    line = Trimmed(line);
    status = TakeNumber(&line).value_or(0);
    return;
  }
  const size_t colon = line.find(':');
  if (colon == std::string_view::npos) return;
  const std::string name = Lowered(line.substr(0, colon));
  const std::string_view value = Trimmed(line.substr(colon + 1));
  static constexpr std::array<std::string_view, 6> kIdNames = {
      "x-amz-request-id",  "x-ms-request-id", "x-guploader-uploadid",
      "x-goog-request-id", "x-request-id",    "cf-ray"};
  if (name == "content-range") content_range = value;
  if (name == "content-encoding") content_encoding = value;
  if (name == "etag") etag = value;
  if (name == "content-length") {
    std::string_view digits = value;
    num_bytes = TakeNumber(&digits).value_or(-1);
  }
  if (request_id.empty() && std::ranges::find(kIdNames, name) != kIdNames.end()) {
    request_id = value;
  }
}

void Answer::AddText(std::string_view piece) {
  text.append(piece.substr(0, kMaxTextBytes - text.size()));
}

Verdict Judge(const Answer& answer, const Question& question) {
  switch (answer.status) {
    case 200:
    case 206:
      return JudgeBody(answer, question);
    case 301:
    case 302:
    case 303:
    case 307:
    case 308:
      return {.kind = Kind::kRedirect, .reason = Message(answer)};
    case 401:
    case 403:
      return {.kind = Kind::kRefused, .reason = Message(answer)};
    case 404:
    case 410:
      return Failure(ErrorKind::kFileNotFound,
                     "the store does not have the object: " + Message(answer));
    case 412:
      return Changed(Message(answer));
    case 416:
      return Changed("it ends before the range, " + Message(answer));
    case 429:
    case 503:
      return {.kind = Kind::kBusy, .reason = Message(answer)};
    default:
      break;
  }
  if (HasExpired(answer)) return {.kind = Kind::kRefused, .reason = Message(answer)};
  if (question.has_condition && (answer.status == 400 || answer.status == 501)) {
    return {.kind = Kind::kNoCondition, .reason = Message(answer)};
  }
  if (answer.status == 408 || answer.status >= 500) {
    return {.kind = Kind::kAgain, .reason = Message(answer)};
  }
  return Failure(ErrorKind::kIo, "the store refuses the request: " + Message(answer));
}

bool IsSameETag(std::string_view left, std::string_view right) {
  const auto content = [](std::string_view etag) {
    if (etag.starts_with("W/")) etag.remove_prefix(2);
    if (etag.size() >= 2 && etag.front() == '"' && etag.back() == '"') {
      etag = etag.substr(1, etag.size() - 2);
    }
    return etag;
  };
  return content(left) == content(right);
}

bool IsStrongETag(std::string_view etag) {
  // Nothing from a listing may end the header.
  return etag.size() >= 2 && etag.front() == '"' && etag.back() == '"' &&
         std::ranges::all_of(etag, [](char c) { return c > 0x20 && c < 0x7F; });
}

}  // namespace torchparquet
