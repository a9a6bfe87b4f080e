#include "remote/transport/http_fetcher.h"

#include <pthread.h>
#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <cstdlib>
#include <exception>
#include <new>
#include <utility>

#include "base/errors.h"
#include "remote/transport/libcurl.h"
#include "remote/transport/reactor.h"

namespace torchparquet {
namespace {

Error Stopped() { return Error(ErrorKind::kStopped, "the fetcher was stopped"); }

// Begins a thread that takes no signals: those are for threads that can act on them.
std::thread QuietThread(std::shared_ptr<Reactor> reactor) {
  sigset_t all;
  sigset_t before;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &before);
  try {
    std::thread thread([reactor = std::move(reactor)] { reactor->Run(); });
    pthread_sigmask(SIG_SETMASK, &before, nullptr);
    return thread;
  } catch (const std::exception& error) {
    pthread_sigmask(SIG_SETMASK, &before, nullptr);
    throw NoThread(error);
  }
}

// The fetcher of one process. Never freed: a forked child cannot know what its parent was
// about to do with it.
struct ProcessEntry {
  const pid_t pid = getpid();
  std::mutex mutex = {};
  std::weak_ptr<HttpFetcher> fetcher = {};  // guarded by mutex
};

std::atomic<ProcessEntry*> process_entry = nullptr;

ProcessEntry& EntryOfProcess() {
  ProcessEntry* entry = process_entry;
  while (entry == nullptr || entry->pid != getpid()) {
    auto made = std::make_unique<ProcessEntry>();
    if (process_entry.compare_exchange_strong(entry, made.get())) return *made.release();
  }
  return *entry;
}

// The TLS library frees what the thread uses when the process exits.
void StopAtExit() {
  ProcessEntry* entry = process_entry;
  if (entry == nullptr || entry->pid != getpid()) return;
  std::shared_ptr<HttpFetcher> fetcher;
  {
    const std::lock_guard lock(entry->mutex);
    fetcher = entry->fetcher.lock();
  }
  if (fetcher != nullptr) fetcher->Stop();
}

}  // namespace

bool HaveHttp() { return FindLibcurl() != nullptr; }

HttpFetcher::HttpFetcher(const FetchOptions& options) : pid_(getpid()) {
  const int64_t num_connections = std::max<int64_t>(options.max_connections, 1);
  // A lane begins with a quarter of its connections, and keeps one where a store is
  // overloaded. Many small lanes would hardly slow down.
  constexpr int64_t kLeastOfLane = 16;
  const int64_t num_lanes = std::clamp<int64_t>(
      options.num_threads, 1, std::max<int64_t>(num_connections / kLeastOfLane, 1));
  for (int64_t lane = 0; lane < num_lanes; ++lane) {
    FetchOptions part = options;
    part.max_connections =
        num_connections / num_lanes + (lane < num_connections % num_lanes ? 1 : 0);
    lanes_.push_back({std::make_shared<Reactor>(part)});
  }
}

HttpFetcher::~HttpFetcher() {
  if (!IsInherited()) {
    Stop();
    return;
  }
  // Closed connections would tell the peers of the parent, and there are no such threads
  // here to wait for.
  new (std::nothrow) std::vector<Lane>(std::move(lanes_));
}

bool HttpFetcher::IsInherited() const { return pid_ != getpid(); }

// Fetches stand in memory 16 bytes apart or more. By Fibonacci hashing, which Knuth
// describes in "Sorting and Searching", 6.4, those of a row of addresses spread evenly.
HttpFetcher::Lane& HttpFetcher::LaneOf(const Fetch* fetch) {
  const uint64_t number = reinterpret_cast<uintptr_t>(fetch) / 16;
  const uint64_t hash = (number * 0x9E3779B97F4A7C15) >> 32;
  return lanes_[(hash * lanes_.size()) >> 32];
}

void HttpFetcher::Stop() {
  if (IsInherited()) return;
  for (const Lane& lane : lanes_) lane.reactor->Stop();
  for (Lane& lane : lanes_) {
    std::thread thread;
    {
      const std::lock_guard lock(mutex_);
      is_stopped_ = true;
      thread = std::move(lane.thread);
    }
    if (!thread.joinable()) continue;
    if (thread.get_id() == std::this_thread::get_id()) {
      thread.detach();
    } else {
      thread.join();
    }
  }
}

void HttpFetcher::DoStart(const std::shared_ptr<Fetch>& fetch) {
  if (IsInherited()) {
    return fetch->Fail(Error(ErrorKind::kStopped,
                             "the fetcher belongs to the process that forked this one"));
  }
  Lane& lane = LaneOf(fetch.get());
  {
    const std::lock_guard lock(mutex_);
    if (!is_stopped_ && !lane.thread.joinable()) lane.thread = QuietThread(lane.reactor);
  }
  if (!lane.reactor->Post({Reactor::Message::Kind::kStart, fetch}))
    fetch->Fail(Stopped());
}

void HttpFetcher::Hurry(const std::shared_ptr<Fetch>& fetch) {
  if (IsInherited()) return;
  LaneOf(fetch.get()).reactor->Post({Reactor::Message::Kind::kHurry, fetch});
}

void HttpFetcher::Cancel(const std::shared_ptr<Fetch>& fetch) {
  if (IsInherited()) return;
  fetch->Fail(cancelled_);
  try {
    LaneOf(fetch.get()).reactor->Post({Reactor::Message::Kind::kCancel, fetch});
  } catch (const std::bad_alloc&) {  // NOLINT(bugprone-empty-catch)
    // Bytes that are under way then come in vain.
  }
}

void HttpFetcher::Wake() {
  if (IsInherited()) return;
  const std::lock_guard lock(mutex_);
  // A lane without a thread has no fetch that waits, and nobody to read the message.
  for (const Lane& lane : lanes_) {
    if (lane.thread.joinable()) lane.reactor->Post({Reactor::Message::Kind::kWake});
  }
}

FetchStats HttpFetcher::stats() const {
  FetchStats sum;
  for (const Lane& lane : lanes_) sum = sum + lane.reactor->stats();
  return sum;
}

std::shared_ptr<Fetcher> ProcessFetcher(const FetchOptions& options) {
  ProcessEntry& entry = EntryOfProcess();
  const std::lock_guard lock(entry.mutex);
  auto fetcher = entry.fetcher.lock();
  if (fetcher == nullptr) {
    fetcher = std::make_shared<HttpFetcher>(options);
    entry.fetcher = fetcher;
    // After libcurl has begun, so that this runs before what its libraries do at exit.
    static const int registered = std::atexit(StopAtExit);
    (void)registered;
  }
  return fetcher;
}

}  // namespace torchparquet
