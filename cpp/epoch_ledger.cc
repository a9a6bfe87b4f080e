#include "epoch_ledger.h"

#include <atomic>
#include <string>

#include "errors.h"

namespace torchparquet {
namespace {

// Layout of the words: the epoch last set, the iteration it was set for, one past the
// last iteration of each worker, and the key of each iteration (0: free).
constexpr size_t kBaseEpoch = 0;
constexpr size_t kBaseIteration = 1;
constexpr size_t kLastIteration = 2;
constexpr size_t kKeys = 2 + EpochLedger::kMaxWorkers;

using Word = std::atomic_ref<int64_t>;
static_assert(Word::is_always_lock_free);

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
                "at most 1024 DataLoader workers can iterate a data set: worker " +
                    std::to_string(worker));
  }
  const Word last(words_[kLastIteration + static_cast<size_t>(worker)]);
  for (int64_t iteration = last.load(); iteration < kMaxIterations; ++iteration) {
    const Word entry(words_[kKeys + static_cast<size_t>(iteration)]);
    int64_t found = 0;
    if (entry.compare_exchange_strong(found, key) || found == key) {
      last.store(iteration + 1);
      return EpochOf(iteration);
    }
  }
  throw Error(ErrorKind::kInvalidArgument,
              "a data set can be iterated 16384 times; make a new one to go on");
}

void EpochLedger::SetEpoch(int64_t epoch) {
  Word(words_[kBaseIteration]).store(NumIterations());
  Word(words_[kBaseEpoch]).store(epoch);
}

int64_t EpochLedger::NextEpoch() const { return EpochOf(NumIterations()); }

int64_t EpochLedger::EpochOf(int64_t iteration) const {
  return Word(words_[kBaseEpoch]).load() + iteration - Word(words_[kBaseIteration]).load();
}

int64_t EpochLedger::NumIterations() const {
  int64_t iteration = 0;
  while (iteration < kMaxIterations &&
         Word(words_[kKeys + static_cast<size_t>(iteration)]).load() != 0) {
    ++iteration;
  }
  return iteration;
}

}  // namespace torchparquet
