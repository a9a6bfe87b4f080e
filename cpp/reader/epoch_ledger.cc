#include "reader/epoch_ledger.h"

#include <algorithm>
#include <atomic>
#include <string>

#include "base/errors.h"

namespace torchparquet {
namespace {

// Layout of the words: the latest iteration that an epoch was set for, plus one; a number
// of iterations that have begun, which may lag; for each worker, one past its last
// iteration; for each entry, the lap of its iteration, plus one, and its key (0: free);
// for each entry, the iteration that an epoch was set for, plus one (0: none), and the
// epoch.
constexpr size_t kLatestSet = 0;
constexpr size_t kNumBegun = 1;
constexpr size_t kLastIteration = 2;
constexpr size_t kKeys = kLastIteration + EpochLedger::kMaxWorkers;
constexpr size_t kSetIterations = kKeys + EpochLedger::kNumEntries;
constexpr size_t kSetEpochs = kSetIterations + EpochLedger::kNumEntries;

// The key's low bits, and above them the lap. Two keys of one lap that differ in the
// other bits alone would be taken for one, which is as likely as 1 in 2^41.
constexpr int kKeyBits = 41;

using Word = std::atomic_ref<int64_t>;
static_assert(Word::is_always_lock_free);

size_t EntryOf(int64_t iteration) {
  return static_cast<size_t>(iteration % EpochLedger::kNumEntries);
}

int64_t LapOf(int64_t iteration) { return iteration / EpochLedger::kNumEntries + 1; }

void Raise(const Word& word, int64_t value) {
  int64_t found = word.load();
  while (found < value && !word.compare_exchange_weak(found, value)) {
  }
}

}  // namespace

EpochLedger::EpochLedger(std::span<int64_t> words) : words_(words) {
  if (static_cast<int64_t>(words.size()) != kNumWords) {
    throw InvalidArgument("an epoch ledger has ", kNumWords, " words: ", words.size());
  }
}

int64_t EpochLedger::Begin(int64_t key, int64_t worker) {
  if (worker < 0 || worker >= kMaxWorkers) {
    throw InvalidArgument("at most ", kMaxWorkers,
                          " DataLoader workers can iterate a data set: worker ", worker);
  }
  const Word last(words_[kLastIteration + static_cast<size_t>(worker)]);
  const int64_t oldest = NumIterations() - kNumEntries;
  for (int64_t iteration = std::max(last.load(), oldest);; ++iteration) {
    const Word entry(words_[kKeys + EntryOf(iteration)]);
    const int64_t lap = LapOf(iteration);
    const int64_t taken = (lap << kKeyBits) | (key & ((int64_t{1} << kKeyBits) - 1));
    int64_t found = entry.load();
    // Entries of an earlier lap are free.
    while ((found >> kKeyBits) < lap && !entry.compare_exchange_weak(found, taken)) {
    }
    if ((found >> kKeyBits) < lap || found == taken) {
      Raise(Word(words_[kNumBegun]), iteration + 1);
      last.store(iteration + 1);
      return iteration;
    }
  }
}

void EpochLedger::SetEpochOf(int64_t iteration, int64_t epoch) {
  if (iteration < 0) throw InvalidArgument("iterations are counted from 0: ", iteration);
  const int64_t before = Word(words_[kSetIterations + EntryOf(iteration)]).load();
  if (before > iteration + 1) return;  // a lap later
  // The iterations before may count from the epoch that is about to be overwritten.
  if (before != 0 && before < iteration + 1)
    Record(iteration - 1, EpochOf(iteration - 1));
  Record(iteration, epoch);
  Raise(Word(words_[kLatestSet]), iteration + 1);
}

void EpochLedger::Record(int64_t iteration, int64_t epoch) {
  Word(words_[kSetEpochs + EntryOf(iteration)]).store(epoch);
  Word(words_[kSetIterations + EntryOf(iteration)]).store(iteration + 1);
}

int64_t EpochLedger::EpochOf(int64_t iteration) const {
  const int64_t latest = Word(words_[kLatestSet]).load() - 1;
  const int64_t begin = std::min(iteration, latest);
  int64_t set_at = -1;
  for (int64_t at = begin; at > begin - kNumEntries && at >= 0 && set_at < at; --at) {
    const int64_t found = Word(words_[kSetIterations + EntryOf(at)]).load() - 1;
    if (found <= at) set_at = std::max(set_at, found);
  }
  if (set_at < 0) return iteration;
  return Word(words_[kSetEpochs + EntryOf(set_at)]).load() + iteration - set_at;
}

int64_t EpochLedger::NumIterations() const {
  int64_t number = Word(words_[kNumBegun]).load();
  while ((Word(words_[kKeys + EntryOf(number)]).load() >> kKeyBits) >= LapOf(number)) {
    ++number;
  }
  return number;
}

}  // namespace torchparquet
