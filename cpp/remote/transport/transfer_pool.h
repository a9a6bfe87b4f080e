#pragma once

#include <memory>
#include <optional>
#include <vector>

#include "remote/transport/fetcher.h"
#include "remote/transport/libcurl.h"
#include "remote/transport/transfer.h"

namespace torchparquet {

// The requests in flight, and the connections that they share. Used by one thread, except
// for Wake.
class TransferPool {
 public:
  struct Done {
    Transfer* transfer = nullptr;
    CURLcode code = CURLE_OK;
  };

  // Throws Error(kInternal) if libcurl cannot begin.
  TransferPool(Transfer::Owner* owner, const FetchOptions& options);
  ~TransferPool();
  TransferPool(const TransferPool&) = delete;
  TransferPool& operator=(const TransferPool&) = delete;

  // Sends a request. It is active until its Release.
  void Send(Transfer::Request request);
  // Sends a request anew that was redirected.
  void SendAgain(Transfer* transfer);
  // Moves bytes. Throws Error(kInternal) if libcurl cannot go on.
  void Move();
  // A request that ended, which libcurl is done with.
  std::optional<Done> NextDone();
  // Takes a request from libcurl that has not ended. Breaks its connection.
  void Break(Transfer* transfer);
  // Lets go of a request that libcurl is done with.
  void Release(Transfer* transfer);
  // Breaks and releases all.
  void Clear();

  // In no order.
  const std::vector<std::unique_ptr<Transfer>>& active() const { return active_; }
  int64_t num_active() const { return std::ssize(active_); }
  // Another request for the same bytes that are wanted of either. Null if there is none.
  Transfer* OtherOf(const Transfer& transfer) const;

  // Returns when bytes can be moved, after a Wake, or after some time.
  void Wait(int milliseconds) {
    Curl().multi_poll(multi_.get(), nullptr, 0, milliseconds, nullptr);
  }
  // Thread-safe.
  void Wake() { Curl().multi_wakeup(multi_.get()); }

 private:
  struct CloseMulti {
    void operator()(CURLM* multi) const { Curl().multi_cleanup(multi); }
  };
  struct CloseShare {
    void operator()(CURLSH* share) const { Curl().share_cleanup(share); }
  };

  Transfer::Owner* const owner_;
  const FetchOptions options_;
  // In the order in which they go: the connections of `multi_` use `share_`.
  std::unique_ptr<CURLSH, CloseShare> share_;
  std::unique_ptr<CURLM, CloseMulti> multi_;
  std::vector<std::unique_ptr<Transfer>> idle_;
  std::vector<std::unique_ptr<Transfer>> active_;
};

}  // namespace torchparquet
