#pragma once

#include <cstdint>
#include <span>

namespace torchparquet {

// Numbers the iterations over one data set across the processes that iterate it. Each new
// iteration is the next epoch, and the DataLoader workers of one iteration agree on its
// number without talking. A view of shared memory that starts zeroed; its operations are
// atomic and never wait.
//
// Workers of one iteration present the same key, made of the DataLoader's base seed, its
// number of workers, and the order in which processes are started. The first of them
// takes the next free entry; the others find the key there. A worker never takes the same
// entry twice. So a key that repeats, for example with workers that stay, still moves on.
//
// Entries form a ring. Those of iterations that began kNumEntries ago are taken again, so
// a worker finds its iteration unless as many others have begun since.
class EpochLedger {
 public:
  static constexpr int64_t kMaxWorkers = 1024;
  static constexpr int64_t kNumEntries = 16384;
  static constexpr int64_t kNumWords = 2 + kMaxWorkers + 3 * kNumEntries;

  // `words` has kNumWords entries and outlives the ledger.
  explicit EpochLedger(std::span<int64_t> words);

  // Returns the number of the iteration that `worker` begins under `key`, which must not
  // be 0. Throws Error(kInvalidArgument) if the worker's number is too large.
  int64_t Begin(int64_t key, int64_t worker);

  // Sets the epoch of an iteration that has begun or is the next to begin. Later
  // iterations count on from there. Earlier ones keep their epochs, also for workers that
  // have not begun them yet. Throws Error(kInvalidArgument) if `iteration` is negative.
  void SetEpochOf(int64_t iteration, int64_t epoch);

  // Counts from the latest epoch that was set for this iteration or an earlier one; from
  // 0 if none was set.
  int64_t EpochOf(int64_t iteration) const;

  // The number of iterations begun, which is the number of the next one.
  int64_t NumIterations() const;

 private:
  void Record(int64_t iteration, int64_t epoch);

  std::span<int64_t> words_;
};

}  // namespace torchparquet
