#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <random>
#include <string>
#include <unordered_map>
#include <vector>

#include "remote/http/pacing.h"
#include "remote/transport/fetch_queue.h"
#include "remote/transport/fetcher.h"
#include "remote/transport/transfer.h"
#include "remote/transport/transfer_pool.h"

namespace torchparquet {

// Brings fetches by many requests at once, on the one thread that calls Run.
class Reactor : private Transfer::Owner {
 public:
  struct Message {
    enum class Kind { kStart, kHurry, kCancel, kWake };
    Kind kind = Kind::kWake;
    std::shared_ptr<Fetch> fetch = nullptr;
  };

  // Throws Error(kInternal) if libcurl cannot begin.
  explicit Reactor(const FetchOptions& options);

  // Thread-safe.

  // Returns false if nobody reads messages any more.
  bool Post(Message message);
  // Makes Run return. Idempotent.
  void Stop();
  FetchStats stats() const;

  // Works until Stop. Fetches that are not over then fail with Error(kStopped). If
  // memory runs out, those that are not over fail with Error(kOutOfMemory), and later
  // ones are tried. Throws nothing.
  void Run() noexcept;

 private:
  using Clock = std::chrono::steady_clock;
  using Time = Clock::time_point;
  using Job = std::shared_ptr<FetchJob>;

  struct Host {
    FirstByteTimes first_bytes;
    bool takes_no_condition = false;  // refuses If-Match
  };
  // Transfer::Owner.
  bool OnBody(Transfer* transfer) override;
  void OnBytes(Transfer* transfer, int64_t num_bytes) override;
  void OnWaste(int64_t num_bytes) override;

  // Returns false once stopped.
  bool TakeMessages();
  void Take(const Message& message);
  void Step();
  void Wait();
  void Close(const Error& error);
  void FailAll(const Error& error);

  // Requests that begin.
  void BeginReady();
  void Begin(const Job& job);
  void Send(const Job& job, std::shared_ptr<const ObjectAddress> address, bool is_hedge);

  // Requests that end.
  void Finish(const TransferPool::Done& done);
  void Decide(const Job& job, const Transfer& ended, const Verdict& verdict);
  void Refuse(const Job& job, const Transfer& ended, const Verdict& verdict);
  void Retry(const Job& job, const Transfer& ended, const Verdict& verdict);
  void Complete(const Job& job);
  void Fail(const Job& job, const Error& error);
  void AbandonAll(const Job& job);
  void DropAbandoned();

  // By time alone.
  void Tell(bool all);
  void TellNew(FetchJob* job);
  void Watch(Time now);
  void Hedge(Time now);

  const FetchOptions options_;
  // Made before memory may run out.
  const Error stopped_{ErrorKind::kStopped, "the fetcher was stopped"};
  TransferPool pool_;  // for the thread of Run alone, but for Wake

  std::mutex mutex_;  // guards the three below
  std::vector<Message> messages_;
  bool is_stopped_ = false;
  bool is_closed_ = false;  // nobody reads messages

  // For the thread of Run alone.
  std::vector<Message> taken_;  // empty, or about to be jobs
  FetchQueue queue_;
  std::unordered_map<const Fetch*, Job> jobs_;
  std::map<std::string, Host> hosts_;  // by origin
  ConnectionBudget budget_;
  HedgeBudget hedges_;
  std::mt19937_64 random_;
  int64_t num_jobs_ = 0;  // ever
  Time last_watch_;

  // Read by any thread, one by one. They order nothing.
  FetchCounts<std::atomic<int64_t>> counters_;
};

}  // namespace torchparquet
