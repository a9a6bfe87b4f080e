#include "reader/epoch_ledger.h"

#include <doctest/doctest.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <memory>
#include <new>
#include <thread>
#include <vector>

#include "caught.h"

namespace torchparquet {
namespace {

using testing::Throws;

// Zeroed words that forked children share.
class SharedWords {
 public:
  explicit SharedWords(int64_t size) : size_(static_cast<size_t>(size)) {
    void* mapping = mmap(nullptr, size_ * sizeof(int64_t), PROT_READ | PROT_WRITE,
                         MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (mapping == MAP_FAILED) throw std::bad_alloc();
    words_ = static_cast<int64_t*>(mapping);
  }
  ~SharedWords() { munmap(words_, size_ * sizeof(int64_t)); }
  SharedWords(const SharedWords&) = delete;
  SharedWords& operator=(const SharedWords&) = delete;

  std::span<int64_t> span() { return {words_, size_}; }

 private:
  size_t size_;
  int64_t* words_;
};

int64_t BeginEpoch(EpochLedger ledger, int64_t key, int64_t worker) {
  return ledger.EpochOf(ledger.Begin(key, worker));
}

int64_t NextEpoch(const EpochLedger& ledger) {
  return ledger.EpochOf(ledger.NumIterations());
}

void SetEpoch(EpochLedger ledger, int64_t epoch) {
  ledger.SetEpochOf(ledger.NumIterations(), epoch);
}

// Runs `work(worker)` in a forked process per worker, all at once. Every one must end
// well.
template <typename Work>
void InProcesses(int64_t num_workers, Work&& work) {
  std::vector<pid_t> children;
  for (int64_t worker = 0; worker < num_workers; ++worker) {
    const pid_t child = fork();
    REQUIRE(child >= 0);
    if (child == 0) {
      const bool failed = testing::Caught([&] { work(worker); }).has_value();
      _exit(failed ? 1 : 0);
    }
    children.push_back(child);
  }
  for (const pid_t child : children) {
    int status = -1;
    REQUIRE(waitpid(child, &status, 0) == child);
    CHECK(status == 0);
  }
}

TEST_CASE("each new iteration is the next epoch") {
  std::vector<int64_t> words(EpochLedger::kNumWords);
  EpochLedger ledger(words);
  for (int64_t epoch = 0; epoch < 50; ++epoch) {
    CHECK(NextEpoch(ledger) == epoch);
    CHECK(BeginEpoch(ledger, 1000 + epoch, 0) == epoch);
  }
}

TEST_CASE("a key that repeats still moves on") {
  std::vector<int64_t> words(EpochLedger::kNumWords);
  EpochLedger ledger(words);
  for (int64_t epoch = 0; epoch < 20; ++epoch) {
    for (int64_t worker = 0; worker < 3; ++worker) {
      CHECK(BeginEpoch(ledger, 7, worker) == epoch);
    }
  }
}

TEST_CASE("SetEpoch names the next iteration, which need not be later") {
  std::vector<int64_t> words(EpochLedger::kNumWords);
  EpochLedger ledger(words);
  SetEpoch(ledger, 5);
  CHECK(NextEpoch(ledger) == 5);
  CHECK(BeginEpoch(ledger, 1, 0) == 5);
  CHECK(BeginEpoch(ledger, 2, 0) == 6);
  SetEpoch(ledger, 2);
  CHECK(BeginEpoch(ledger, 3, 0) == 2);
  CHECK(BeginEpoch(ledger, 3, 1) == 2);
  CHECK(NextEpoch(ledger) == 3);
  SetEpoch(ledger, 9);
  SetEpoch(ledger, 4);
  CHECK(BeginEpoch(ledger, 4, 1) == 4);
}

TEST_CASE("an iteration that has begun can be given its epoch by each of its workers") {
  SharedWords words(EpochLedger::kNumWords);
  EpochLedger ledger(words.span());
  for (int64_t worker = 0; worker < 3; ++worker) {
    const int64_t iteration = ledger.Begin(1, worker);
    CHECK(iteration == 0);
    ledger.SetEpochOf(iteration, 40);
    CHECK(ledger.EpochOf(iteration) == 40);
    CHECK(NextEpoch(ledger) == 41);
  }
  ledger.SetEpochOf(1, 7);
  ledger.SetEpochOf(0, 50);  // a worker that comes late does not undo what was set since
  CHECK(NextEpoch(ledger) == 7);
  CHECK(Throws(ErrorKind::kInvalidArgument, [&] { ledger.SetEpochOf(-1, 0); }));
}

TEST_CASE("SetEpoch leaves the iteration under way as it is, for late workers too") {
  std::vector<int64_t> words(EpochLedger::kNumWords);
  EpochLedger ledger(words);
  CHECK(BeginEpoch(ledger, 1, 0) == 0);
  SetEpoch(ledger, 7);
  CHECK(BeginEpoch(ledger, 1, 1) == 0);
  CHECK(NextEpoch(ledger) == 7);
  CHECK(BeginEpoch(ledger, 2, 1) == 7);
  CHECK(BeginEpoch(ledger, 2, 0) == 7);
  CHECK(BeginEpoch(ledger, 3, 0) == 8);
}

TEST_CASE("a worker that comes late to an iteration finds it by its key") {
  std::vector<int64_t> words(EpochLedger::kNumWords);
  EpochLedger ledger(words);
  CHECK(BeginEpoch(ledger, 11, 0) == 0);
  CHECK(BeginEpoch(ledger, 12, 0) == 1);
  CHECK(BeginEpoch(ledger, 11, 1) == 0);
  CHECK(BeginEpoch(ledger, 12, 1) == 1);
  CHECK(BeginEpoch(ledger, 13, 2) == 2);  // took no part in the two before
}

TEST_CASE("two views of the same words agree") {
  std::vector<int64_t> words(EpochLedger::kNumWords);
  EpochLedger one(words);
  EpochLedger other(words);
  CHECK(BeginEpoch(one, 5, 0) == 0);
  CHECK(NextEpoch(other) == 1);
  CHECK(BeginEpoch(other, 6, 0) == 1);
}

TEST_CASE("limits are errors") {
  std::vector<int64_t> words(EpochLedger::kNumWords);
  EpochLedger ledger(words);
  CHECK(Throws(ErrorKind::kInvalidArgument, [&] { BeginEpoch(ledger, 1, -1); }));
  CHECK(Throws(ErrorKind::kInvalidArgument,
               [&] { BeginEpoch(ledger, 1, EpochLedger::kMaxWorkers); }));
  CHECK(BeginEpoch(ledger, 1, EpochLedger::kMaxWorkers - 1) == 0);
  CHECK(Throws(ErrorKind::kInvalidArgument,
               [&] { EpochLedger{std::span(words).subspan(1)}; }));
}

TEST_CASE("a data set can be iterated without end") {
  std::vector<int64_t> words(EpochLedger::kNumWords);
  EpochLedger ledger(words);
  SetEpoch(ledger, 7);
  int64_t num_wrong = 0;
  for (int64_t i = 0; i < 300'000; ++i) {
    const int64_t worker = i % 2;
    num_wrong += NextEpoch(ledger) != 7 + i;
    num_wrong += BeginEpoch(ledger, 1 + i, worker) != 7 + i;
    num_wrong += BeginEpoch(ledger, 1 + i, 2) != 7 + i;
  }
  CHECK(num_wrong == 0);
  CHECK(ledger.NumIterations() == 300'000);
  // A worker that took no part so far, and one that took part in each other one.
  CHECK(BeginEpoch(ledger, 300'000, 3) == 7 + 299'999);
  CHECK(BeginEpoch(ledger, 1'000'000, 0) == 7 + 300'000);
}

TEST_CASE("epochs that are set hold across the end of the entries") {
  std::vector<int64_t> words(EpochLedger::kNumWords);
  EpochLedger ledger(words);
  int64_t num_wrong = 0;
  int64_t epoch = 0;
  for (int64_t i = 0; i < 3 * EpochLedger::kNumEntries; ++i) {
    if (i % 5000 == 3) SetEpoch(ledger, epoch = 2 * i);
    num_wrong += BeginEpoch(ledger, 1 + i, 0) != epoch++;
  }
  CHECK(num_wrong == 0);
  // The same entry as an epoch that was set before, which others still count from.
  std::vector<int64_t> others(EpochLedger::kNumWords);
  EpochLedger other(others);
  SetEpoch(other, 100);
  for (int64_t i = 0; i < EpochLedger::kNumEntries; ++i) other.Begin(1 + i, 0);
  SetEpoch(other, 5);
  CHECK(NextEpoch(other) == 5);
  CHECK(other.EpochOf(EpochLedger::kNumEntries - 1) ==
        100 + EpochLedger::kNumEntries - 1);
  CHECK(other.EpochOf(EpochLedger::kNumEntries + 3) == 8);
}

// Every worker begins `kNumIterations` under the key of each; returns all epochs.
constexpr int64_t kNumWorkers = 6;
constexpr int64_t kNumIterations = 200;

template <typename KeyOf>
void CheckWorkersAgree(const KeyOf& key_of) {
  SharedWords words(EpochLedger::kNumWords);
  SharedWords found(kNumWorkers * kNumIterations);
  SetEpoch(EpochLedger(words.span()), 10);
  InProcesses(kNumWorkers, [&](int64_t worker) {
    EpochLedger ledger(words.span());
    for (int64_t i = 0; i < kNumIterations; ++i) {
      found.span()[static_cast<size_t>(worker * kNumIterations + i)] =
          BeginEpoch(ledger, key_of(i), worker);
    }
  });
  int64_t mismatches = 0;
  for (int64_t i = 0; i < kNumWorkers * kNumIterations; ++i) {
    mismatches += found.span()[static_cast<size_t>(i)] != 10 + i % kNumIterations;
  }
  CHECK(mismatches == 0);
  CHECK(NextEpoch(EpochLedger(words.span())) == 10 + kNumIterations);
}

TEST_CASE("processes agree on the epoch of each iteration") {
  CheckWorkersAgree([](int64_t iteration) { return 1'000'003 * (iteration + 1); });
}

TEST_CASE("processes agree although the key repeats") {
  CheckWorkersAgree([](int64_t) { return int64_t{42}; });
}

TEST_CASE("the parent's SetEpoch reaches the processes that it forks") {
  SharedWords words(EpochLedger::kNumWords);
  EpochLedger ledger(words.span());
  for (const int64_t epoch : {3, 0, 8}) {
    SetEpoch(ledger, epoch);
    InProcesses(4, [&](int64_t worker) {
      if (BeginEpoch(EpochLedger(words.span()), 100 + epoch, worker) != epoch) _exit(2);
    });
    CHECK(NextEpoch(ledger) == epoch + 1);
  }
}

TEST_CASE("threads that begin different iterations never share one") {
  SharedWords words(EpochLedger::kNumWords);
  std::vector<int64_t> epochs(8 * 100);
  {
    std::vector<std::jthread> threads;
    for (int64_t worker = 0; worker < 8; ++worker) {
      threads.emplace_back([&, worker] {
        EpochLedger ledger(words.span());
        for (int64_t i = 0; i < 100; ++i) {
          epochs[static_cast<size_t>(worker * 100 + i)] =
              BeginEpoch(ledger, 1 + worker * 100 + i, worker);
        }
      });
    }
  }
  std::sort(epochs.begin(), epochs.end());
  for (int64_t i = 0; i < 800; ++i) CHECK(epochs[static_cast<size_t>(i)] == i);
}

}  // namespace
}  // namespace torchparquet
