#include "reader/epoch_ledger.h"

#include <algorithm>
#include <atomic>
#include <string>

#include "errors.h"

namespace torchparquet {
namespace {

// Layout of the words: the latest iteration that an epoch was set for, plus one; for each
// worker, one past its last iteration; for each iteration, its key (0: free); for each
// iteration, the epoch that was set, plus one (0: none).
constexpr size_t kLatestSet = 0;
constexpr size_t kLastIteration = 1;
constexpr size_t kKeys = kLastIteration + EpochLedger::kMaxWorkers;
constexpr size_t kSetEpochs = kKeys + EpochLedger::kMaxIterations;

using Word = std::atomic_ref<int64_t>;
static_assert(Word::is_always_lock_free);

Error Full() {
  return Error(ErrorKind::kInvalidArgument,
               "a data set can be iterated " +
                   std::to_string(EpochLedger::kMaxIterations) +
                   " times; make a new one to go on");
}

}  // namespace

EpochLedger::EpochLedger(std::span<int64_t> words) : words_(words) {
  if (static_cast<int64_t>(words.size()) != kNumWords) {
    throw Error(ErrorKind::kInvalidArgument,
                "an epoch ledger has " + std::to_string(kNumWords) +
                    " words: " + std::to_string(words.size()));
  }
}

int64_t EpochLedger::Begin(int64_t key, int64_t worker) {
  if (worker < 0 || worker >= kMaxWorkers) {
    throw Error(ErrorKind::kInvalidArgument,
                "at most " + std::to_string(kMaxWorkers) +
                    " DataLoader workers can iterate a data set: worker " +
                    std::to_string(worker));
  }
  const Word last(words_[kLastIteration + static_cast<size_t>(worker)]);
  for (int64_t iteration = last.load(); iteration < kMaxIterations; ++iteration) {
    const Word entry(words_[kKeys + static_cast<size_t>(iteration)]);
    int64_t found = 0;
    if (entry.compare_exchange_strong(found, key) || found == key) {
      last.store(iteration + 1);
      return iteration;
    }
  }
  throw Full();
}

void EpochLedger::SetEpochOf(int64_t iteration, int64_t epoch) {
  if (iteration < 0) {
    throw Error(ErrorKind::kInvalidArgument,
                "iterations are counted from 0: " + std::to_string(iteration));
  }
  if (iteration >= kMaxIterations) throw Full();
  Word(words_[kSetEpochs + static_cast<size_t>(iteration)]).store(epoch + 1);
  const Word latest(words_[kLatestSet]);
  int64_t found = latest.load();
  while (found <= iteration && !latest.compare_exchange_weak(found, iteration + 1)) {
  }
}

int64_t EpochLedger::EpochOf(int64_t iteration) const {
  const int64_t latest = Word(words_[kLatestSet]).load() - 1;
  for (int64_t set_at = std::min(iteration, latest); set_at >= 0; --set_at) {
    const int64_t set = Word(words_[kSetEpochs + static_cast<size_t>(set_at)]).load();
    if (set != 0) return set - 1 + iteration - set_at;
  }
  return iteration;
}

// Iterations take entries without gaps, so a binary search finds the first free one.
int64_t EpochLedger::NumIterations() const {
  int64_t taken = 0;
  int64_t free = kMaxIterations;
  while (taken < free) {
    const int64_t middle = (taken + free) / 2;
    if (Word(words_[kKeys + static_cast<size_t>(middle)]).load() != 0) {
      taken = middle + 1;
    } else {
      free = middle;
    }
  }
  return taken;
}

}  // namespace torchparquet
