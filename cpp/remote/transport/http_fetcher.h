#pragma once

#include <sys/types.h>

#include <memory>
#include <mutex>
#include <thread>
#include <vector>

#include "remote/transport/fetcher.h"

namespace torchparquet {

class Reactor;

// True if there is a libcurl, by which to fetch.
bool HaveHttp();

// Brings ranges by HTTP, from the addresses of objects. Fetches are dealt among its
// threads, each of which has a part of the connections and begins with its first fetch.
// They take no signals and never the GIL, and all OnOver functions run on them, or in
// Start or Cancel. In a forked child, an inherited fetcher fails every fetch and lets go
// of nothing that the parent uses.
class HttpFetcher : public Fetcher {
 public:
  // Throws Error(kNotSupported) without libcurl.
  explicit HttpFetcher(const FetchOptions& options);
  // As Stop. May run on a thread of the fetcher.
  ~HttpFetcher() override;
  HttpFetcher(const HttpFetcher&) = delete;
  HttpFetcher& operator=(const HttpFetcher&) = delete;

  // Ends the threads. Fetches that are not over, and those that are started later, fail
  // with Error(kStopped). Idempotent.
  void Stop();

  void Hurry(const std::shared_ptr<Fetch>& fetch) override;
  void Cancel(const std::shared_ptr<Fetch>& fetch) override;
  void Wake() override;
  FetchStats stats() const override;

 private:
  void DoStart(const std::shared_ptr<Fetch>& fetch) override;
  bool IsInherited() const;

  struct Lane {
    // The thread has a share too, because it may outlive the fetcher.
    std::shared_ptr<Reactor> reactor;
    std::thread thread = {};  // guarded by mutex_
  };
  // The lane that a fetch keeps.
  Lane& LaneOf(const Fetch* fetch);

  const pid_t pid_;
  // Made before memory may run out.
  const Error cancelled_{ErrorKind::kStopped, "the fetch was cancelled"};
  std::vector<Lane> lanes_;  // at least one, and always the same
  std::mutex mutex_;         // guards their threads and the one below
  bool is_stopped_ = false;
};

// The fetcher by HTTP of this process, whose connections all data sets share. It is made
// with the options of the first call, and ends with its last user or at exit. A forked
// child makes its own. Throws Error(kNotSupported) without libcurl.
std::shared_ptr<Fetcher> ProcessFetcher(const FetchOptions& options);

}  // namespace torchparquet
