#include "reader/schedule/index_set.h"

#include <doctest/doctest.h>

#include <cstdint>
#include <set>

#include "draws.h"

namespace torchparquet {
namespace {

TEST_CASE("the next one of a set is the least that is neither missing nor before") {
  testing::Draws draws(31);
  for (const int64_t size : {0, 1, 63, 64, 65, 128, 1000}) {
    CAPTURE(size);
    IndexSet found(size);
    std::set<int64_t> expected;
    for (int64_t index = 0; index < size; ++index) expected.insert(index);
    for (int64_t step = 0; step < 2 * size; ++step) {
      const int64_t index = draws.Between(0, size - 1);
      if (draws.OneIn(4)) {
        found.Add(index);
        expected.insert(index);
      } else {
        found.Remove(index);
        expected.erase(index);
      }
      const int64_t from = draws.Between(0, size);
      const auto next = expected.lower_bound(from);
      CHECK(found.NextFrom(from) == (next == expected.end() ? size : *next));
      CHECK(found.is_empty() == expected.empty());
    }
    for (int64_t index = 0; index < size; ++index) found.Remove(index);
    CHECK(found.is_empty());
    CHECK(found.NextFrom(0) == size);
  }
}

}  // namespace
}  // namespace torchparquet
