#include <doctest/doctest.h>

#include <cstdint>
#include <iterator>
#include <span>
#include <string_view>
#include <vector>

#include "draws.h"
#include "exact_buffer.h"
#include "format/statistics.h"

namespace torchparquet {
namespace {

using testing::Draws;
using testing::ExactBuffer;

// Of three pages, the second of nulls only: null_pages, min_values, max_values,
// boundary_order, null_counts.
std::vector<uint8_t> SomeIndex() {
  return {0x19, 0x31, 2,   1,   2,  // a boolean has a byte of its own
          0x19, 0x38, 1,   'a', 0,    2,    'c',  'd',  0x19, 0x38, 1, 'b',
          0,    2,    'c', 'z', 0x15, 0x02, 0x19, 0x36, 0,    8,    2, 0x00};
}

TEST_CASE("an index has the bounds of each page") {
  ExactBuffer<uint8_t> exact(SomeIndex());
  const auto index = ParseColumnIndex(exact.span());
  REQUIRE(index.has_value());
  CHECK(index->has_nulls_only == std::vector<bool>{false, true, false});
  CHECK(index->low == std::vector<std::string_view>{"a", "", "cd"});
  CHECK(index->high == std::vector<std::string_view>{"b", "", "cz"});
  CHECK(index->num_nulls == std::vector<int64_t>{0, 4, 1});
}

TEST_CASE("an index that is cut or whose lists differ is none") {
  const std::vector<uint8_t> whole = SomeIndex();
  for (size_t size = 0; size < whole.size(); ++size) {
    CAPTURE(size);
    const std::span<const uint8_t> all(whole);
    ExactBuffer<uint8_t> cut(all.first(size));
    CHECK(!ParseColumnIndex(cut.span()).has_value());
  }
  std::vector<uint8_t> shorter = whole;
  shorter[1] = 0x21;
  shorter.erase(shorter.begin() + 4);
  ExactBuffer<uint8_t> exact(shorter);
  CHECK(!ParseColumnIndex(exact.span()).has_value());
}

TEST_CASE("any bytes are an index or none, and have places or none") {
  Draws draws(17);
  for (int i = 0; i < 20'000; ++i) {
    std::vector<uint8_t> bytes = SomeIndex();
    for (int changes = 0; changes < 3; ++changes) {
      bytes[static_cast<size_t>(draws.Below(std::ssize(bytes)))] =
          static_cast<uint8_t>(draws.Below(256));
    }
    ExactBuffer<uint8_t> exact(bytes);
    const auto index = ParseColumnIndex(exact.span());
    if (index) CHECK(index->low.size() == index->has_nulls_only.size());
    FindIndexes(exact.span());
  }
}

}  // namespace
}  // namespace torchparquet
