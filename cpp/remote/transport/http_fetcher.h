#pragma once

#include <sys/types.h>

#include <memory>
#include <mutex>
#include <thread>

#include "remote/transport/fetcher.h"

namespace torchparquet {

class Reactor;

// True if there is a libcurl, by which to fetch.
bool HaveHttp();

// Brings ranges by HTTP, from the addresses of objects. Begins one thread with the first
// Start. It takes no signals and never the GIL, and all OnOver functions run on it, or in
// Start or Cancel. In a forked child, an inherited fetcher fails every fetch and lets go
// of nothing that the parent uses.
class HttpFetcher : public Fetcher {
 public:
  // Throws Error(kNotSupported) without libcurl.
  explicit HttpFetcher(const FetchOptions& options);
  // As Stop. May run on the thread of the fetcher.
  ~HttpFetcher() override;
  HttpFetcher(const HttpFetcher&) = delete;
  HttpFetcher& operator=(const HttpFetcher&) = delete;

  // Ends the thread. Fetches that are not over, and those that are started later, fail
  // with Error(kStopped). Idempotent.
  void Stop();

  void Hurry(const std::shared_ptr<Fetch>& fetch) override;
  void Cancel(const std::shared_ptr<Fetch>& fetch) override;
  void Wake() override;
  FetchStats stats() const override;

 private:
  void DoStart(const std::shared_ptr<Fetch>& fetch) override;
  bool IsInherited() const;

  const pid_t pid_;
  // Made before memory may run out.
  const Error cancelled_{ErrorKind::kStopped, "the fetch was cancelled"};
  // The thread has a share too, because it may outlive the fetcher.
  std::shared_ptr<Reactor> reactor_;
  std::mutex mutex_;  // guards the two below
  std::thread thread_;
  bool is_stopped_ = false;
};

// The fetcher by HTTP of this process, whose connections all data sets share. It is made
// with the options of the first call, and ends with its last user or at exit. A forked
// child makes its own. Throws Error(kNotSupported) without libcurl.
std::shared_ptr<Fetcher> ProcessFetcher(const FetchOptions& options);

}  // namespace torchparquet
