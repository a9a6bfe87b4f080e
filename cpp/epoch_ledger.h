#pragma once

#include <cstdint>
#include <span>

namespace torchparquet {

// Numbers the iterations over one data set, across the processes that iterate it, so
// that each new iteration is the next epoch and the DataLoader workers of one
// iteration agree on which one it is without talking. A view of shared memory that
// starts zeroed; its operations are atomic and never wait.
//
// Workers of one iteration present the same key (made of the DataLoader's base seed and
// number of workers). The first of them takes the next free entry, the others find the
// key there. A worker never takes the same entry twice, so a base seed that repeats, as
// when the user seeds torch before each epoch, still moves on.
class EpochLedger {
 public:
  static constexpr int64_t kMaxWorkers = 1024;
  static constexpr int64_t kMaxIterations = 262144;
  static constexpr int64_t kNumWords = 1 + kMaxWorkers + 2 * kMaxIterations;

  // `words` has kNumWords entries and outlives the ledger.
  explicit EpochLedger(std::span<int64_t> words);

  // Returns the epoch of the iteration that `worker` begins under `key`, which must
  // not be 0. Throws Error(kInvalidArgument) when the ledger is full or the worker's
  // number is too large.
  int64_t Begin(int64_t key, int64_t worker);

  // Makes `epoch` the epoch of the next iteration, from which later ones count on. The
  // iteration under way keeps its own, also for workers that have not begun it yet.
  void SetEpoch(int64_t epoch);

  // The epoch that the next iteration will have.
  int64_t NextEpoch() const;

 private:
  int64_t NumIterations() const;
  int64_t EpochOf(int64_t iteration) const;

  std::span<int64_t> words_;
};

}  // namespace torchparquet
