#include <doctest/doctest.h>

#include <new>
#include <string>

#include "base/errors.h"
#include "reader/parallel_reader.h"
#include "recipes/reading.h"
#include "recipes/window_cutting.h"
#include "scarce_memory.h"

namespace torchparquet {
namespace {

using testing::Consumer;
using testing::DataSet;
using testing::FileRecipe;
using testing::StoredAs;

FileRecipe Recipe() {
  return {.columns = {{"a", "int64"}, {"b", "float32", StoredAs::kDictionary, 6}},
          .row_group_rows = {60, 40},
          .page_rows = 20,
          .compressed = false,
          .has_arrow_schema = true};
}

// Leaves so many allocations to the reader's threads, and after `num_failures` further
// ones as many as they want.
class Scarcity {
 public:
  explicit Scarcity(int64_t num_allocations, int64_t num_failures = testing::kPlenty) {
    testing::is_spared = true;
    testing::failures_left = num_failures;
    testing::allocations_left = num_allocations;
  }
  ~Scarcity() {
    testing::allocations_left = testing::kPlenty;
    testing::failures_left = testing::kPlenty;
    testing::is_spared = false;
  }
  Scarcity(const Scarcity&) = delete;
  Scarcity& operator=(const Scarcity&) = delete;
};

// The same in windows of two chunks.
ReaderParts WithWindows(ReaderParts spec) {
  testing::SetWindows(&spec.share, 2);
  return spec;
}

// Lets memory run out after each number of allocations, until there are enough of them.
void CheckScarcity(const ReaderParts& spec, const DataSet& data, int64_t num_failures) {
  bool has_failed = true;
  for (int64_t left = 0; has_failed; ++left) {
    CAPTURE(left);
    Consumer consumer(data, spec);
    const Scarcity scarcity(left, num_failures);
    consumer.TakeAll();
    CHECK(consumer.num_mismatches() == 0);
    has_failed = testing::allocations_left < 0;
    if (consumer.error()) {
      CHECK(consumer.error()->kind() == ErrorKind::kOutOfMemory);
    } else {
      CHECK(consumer.rows_taken() == data.num_rows());
    }
    if (!has_failed) CHECK(left > 20);
  }
}

TEST_CASE("threads without memory end the stream with an error, wherever it runs out") {
  const DataSet data(Recipe(), 2);
  CheckScarcity(data.Spec(32, 2), data, testing::kPlenty);
  CheckScarcity(WithWindows(data.Spec(32, 2)), data, testing::kPlenty);
}

TEST_CASE("one allocation that fails, wherever it is, gives an error or all rows") {
  const DataSet data(Recipe(), 2);
  for (const int64_t num_threads : {1, 2}) {
    CAPTURE(num_threads);
    CheckScarcity(data.Spec(32, num_threads), data, 1);
    CheckScarcity(WithWindows(data.Spec(32, num_threads)), data, 1);
  }
}

TEST_CASE("a failure is told without memory for its message") {
  const ErrorPlace place{.path = std::string(100, 'p')};
  std::string told;
  ErrorKind kind = ErrorKind::kInternal;
  testing::allocations_left = 0;
  try {
    throw std::bad_alloc();
  } catch (...) {
    const Error error = CurrentErrorAt(place);
    testing::allocations_left = testing::kPlenty;
    kind = error.kind();
    told = error.what();
  }
  CHECK(kind == ErrorKind::kOutOfMemory);
  CHECK(told == "out of memory while reading");
}

}  // namespace
}  // namespace torchparquet
