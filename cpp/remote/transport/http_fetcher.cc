#include "remote/transport/http_fetcher.h"

#include <pthread.h>
#include <signal.h>
#include <unistd.h>

#include <atomic>
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

HttpFetcher::HttpFetcher(const FetchOptions& options)
    : pid_(getpid()), reactor_(std::make_shared<Reactor>(options)) {}

HttpFetcher::~HttpFetcher() {
  if (!IsInherited()) {
    Stop();
    return;
  }
  // To close connections would tell the peers of the parent.
  new (std::nothrow) std::shared_ptr<Reactor>(std::move(reactor_));
  // There is no such thread here, and nothing to wait for.
  if (thread_.joinable()) new (std::nothrow) std::thread(std::move(thread_));
}

bool HttpFetcher::IsInherited() const { return pid_ != getpid(); }

void HttpFetcher::Stop() {
  if (IsInherited()) return;
  reactor_->Stop();
  std::thread thread;
  {
    const std::lock_guard lock(mutex_);
    is_stopped_ = true;
    thread = std::move(thread_);
  }
  if (!thread.joinable()) return;
  if (thread.get_id() == std::this_thread::get_id()) return thread.detach();
  thread.join();
}

void HttpFetcher::DoStart(const std::shared_ptr<Fetch>& fetch) {
  if (IsInherited()) {
    return fetch->Fail(Error(ErrorKind::kStopped,
                             "the fetcher belongs to the process that forked this one"));
  }
  {
    const std::lock_guard lock(mutex_);
    if (!is_stopped_ && !thread_.joinable()) thread_ = QuietThread(reactor_);
  }
  if (!reactor_->Post({Reactor::Message::Kind::kStart, fetch})) fetch->Fail(Stopped());
}

void HttpFetcher::Hurry(const std::shared_ptr<Fetch>& fetch) {
  if (!IsInherited()) reactor_->Post({Reactor::Message::Kind::kHurry, fetch});
}

void HttpFetcher::Cancel(const std::shared_ptr<Fetch>& fetch) {
  if (IsInherited()) return;
  fetch->Fail(cancelled_);
  try {
    reactor_->Post({Reactor::Message::Kind::kCancel, fetch});
  } catch (const std::bad_alloc&) {  // NOLINT(bugprone-empty-catch)
    // Bytes that are under way then come in vain.
  }
}

void HttpFetcher::Wake() {
  if (!IsInherited()) reactor_->Post({Reactor::Message::Kind::kWake});
}

FetchStats HttpFetcher::stats() const { return reactor_->stats(); }

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
