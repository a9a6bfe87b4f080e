#include <doctest/doctest.h>

#include <new>
#include <string>

#include "errors.h"
#include "reader/parallel_reader.h"
#include "recipes/reading.h"
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
          .compressed = false};
}

// Leaves so many allocations to the reader's threads.
class Scarcity {
 public:
  explicit Scarcity(int64_t num_allocations) {
    testing::is_spared = true;
    testing::allocations_left = num_allocations;
  }
  ~Scarcity() {
    testing::allocations_left = testing::kPlenty;
    testing::is_spared = false;
  }
  Scarcity(const Scarcity&) = delete;
  Scarcity& operator=(const Scarcity&) = delete;
};

TEST_CASE("threads without memory end the stream with an error, wherever it runs out") {
  const DataSet data(Recipe(), 2);
  bool has_failed = true;
  for (int64_t left = 0; has_failed; ++left) {
    CAPTURE(left);
    Consumer consumer(data, data.Spec(32, 2));
    const Scarcity scarcity(left);
    consumer.TakeAll();
    CHECK(consumer.num_mismatches() == 0);
    has_failed = consumer.error().has_value();
    if (has_failed) {
      CHECK(consumer.error()->kind() == ErrorKind::kOutOfMemory);
    } else {
      CHECK(left > 20);
    }
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
