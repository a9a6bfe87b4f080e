#pragma once

#include <array>
#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "remote/http/answer.h"
#include "remote/transport/fetch_queue.h"
#include "remote/transport/fetcher.h"
#include "remote/transport/libcurl.h"
#include "remote/transport/remote_object.h"

namespace torchparquet {

// Throws Error(kInternal) if libcurl cannot begin. Thread-safe, and done once.
void InitCurl();

// The scheme, host and port of a URL; empty if it is none by http or https.
std::string OriginOf(const std::string& url);

// One request at a time for a fetch, on a handle of libcurl that is used again. Used by
// the thread of the reactor.
class Transfer {
 public:
  using Clock = std::chrono::steady_clock;
  using Time = Clock::time_point;

  // Hears of bytes while libcurl works. Must not throw.
  class Owner {
   public:
    virtual ~Owner() = default;
    // The bytes that were asked for begin to come. Returns false if they are not wanted.
    virtual bool OnBody(Transfer* transfer) = 0;
    // Bytes are written to the fetch.
    virtual void OnBytes(Transfer* transfer, int64_t num_bytes) = 0;
    virtual void OnWaste(int64_t num_bytes) = 0;
  };

  struct Request {
    std::shared_ptr<FetchJob> job;
    std::shared_ptr<const ObjectAddress> address;
    Question question;
    bool is_hedge = false;  // on a new connection
  };

  // Connections share sessions of TLS through `share`.
  Transfer(Owner* owner, const FetchOptions& options, CURLSH* share);
  Transfer(const Transfer&) = delete;
  Transfer& operator=(const Transfer&) = delete;

  CURL* handle() const { return handle_.get(); }

  // Prepares the handle; the caller adds it to a multi handle.
  void Begin(Request request, Time now);
  // Prepares the handle to ask where the answer points to. Returns why it may not.
  std::optional<std::string> Redirect(Time now);
  // The result of the request, after the handle ended with `code`.
  Verdict Result(CURLcode code);
  // Lets go of the fetch.
  void Reset();

  const Request& request() const { return request_; }
  const Answer& answer() const { return answer_; }
  FetchJob& job() const { return *request_.job; }
  // First bytes are compared by it.
  const std::string& origin() const { return origin_; }

  // Bytes that still come are wasted.
  void Abandon() { is_abandoned_ = true; }
  bool is_abandoned() const { return is_abandoned_; }
  bool has_body() const { return has_body_; }
  Time begin() const { return begin_; }
  // The wait that the store's Retry-After asks for; 0 without one.
  double retry_after_seconds() const;

 private:
  struct CloseHandle {
    void operator()(CURL* handle) const { Curl().easy_cleanup(handle); }
  };
  struct FreeList {
    void operator()(curl_slist* list) const { Curl().slist_free_all(list); }
  };

  static size_t OnHeadLine(char* data, size_t size, size_t count, void* self) noexcept;
  static size_t OnPiece(char* data, size_t size, size_t count, void* self) noexcept;

  std::string Cause(CURLcode code) const;
  void AddHeader(const std::string& header);
  void Ask(const std::string& url, Time now);
  // Takes a piece of a body. Returns false to end the request.
  bool Take(std::string_view piece);
  bool TakeBody(std::string_view piece);

  Owner* const owner_;
  std::unique_ptr<CURL, CloseHandle> handle_;
  std::unique_ptr<curl_slist, FreeList> headers_;
  std::array<char, CURL_ERROR_SIZE> error_text_ = {};

  Request request_;
  std::string origin_;
  int64_t num_redirects_ = 0;
  Time begin_ = {};
  Answer answer_;
  std::optional<Verdict> verdict_;  // by the head
  int64_t num_text_bytes_ = 0;
  int64_t num_bytes_to_skip_ = 0;
  int64_t num_bytes_to_write_ = 0;
  int64_t num_bytes_to_ignore_ = 0;
  bool is_abandoned_ = false;
  bool has_body_ = false;
  bool is_too_long_ = false;
  bool has_no_memory_ = false;
};

}  // namespace torchparquet
