#include "kernels/byte_sink.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "caught.h"
#include "draws.h"

namespace torchparquet::kernels {
namespace {

using testing::Draws;

void Append(ByteSink& sink, const std::vector<uint8_t>& bytes) {
  std::copy(bytes.begin(), bytes.end(), sink.Extend(bytes.size()));
}

bool Holds(const ByteSink& sink, const std::vector<uint8_t>& expected) {
  const auto bytes = sink.bytes();
  return std::equal(bytes.begin(), bytes.end(), expected.begin(), expected.end());
}

TEST_CASE("written bytes stay while the sink grows, and slack follows them") {
  Draws draws(61);
  ByteSink sink;
  std::vector<uint8_t> expected;
  for (int i = 0; i < 500; ++i) {
    const auto bytes =
        testing::RandomBytes(draws, draws.Below(draws.OneIn(9) ? 9000 : 9));
    Append(sink, bytes);
    expected.insert(expected.end(), bytes.begin(), bytes.end());
    std::fill_n(sink.Extend(0), ByteSink::kSlackBytes, uint8_t{0xEE});
    CHECK(sink.size() == expected.size());
  }
  CHECK(Holds(sink, expected));
  CHECK(sink.capacity() <= 2 * (sink.size() + ByteSink::kSlackBytes));
  sink.Truncate(expected.size() + 1);
  CHECK(sink.size() == expected.size());
  sink.Truncate(3);
  expected.resize(3);
  CHECK(Holds(sink, expected));
  const size_t capacity = sink.capacity();
  sink.Clear();
  CHECK(sink.size() == 0);
  CHECK(sink.capacity() == capacity);
}

TEST_CASE("a limit is kept to the byte, and its figures are named") {
  for (const size_t limit : {0, 1, 1000, 100000}) {
    ByteSink sink;
    sink.set_max_bytes(limit);
    for (size_t i = 0; i < limit; ++i) *sink.Extend(1) = 7;
    CHECK(sink.size() == limit);
    CHECK(sink.capacity() <= std::max<size_t>(512, limit + ByteSink::kSlackBytes));
    const auto error = testing::Caught([&] { sink.Extend(12345); });
    REQUIRE(error);
    CHECK(error->kind() == ErrorKind::kValuesTooLarge);
    CHECK(testing::Mentions(*error, std::to_string(limit + 12345)));
    CHECK(testing::Mentions(*error, std::to_string(limit)));
    CHECK(sink.size() == limit);
    // A limit below what the sink holds allows no more.
    sink.set_max_bytes(limit / 2);
    CHECK(testing::Throws(ErrorKind::kValuesTooLarge, [&] { sink.Extend(1); }));
  }
}

TEST_CASE("a size beyond all memory is refused") {
  for (const size_t size : {~size_t{0}, ~size_t{0} - 31, ~size_t{0} / 2}) {
    ByteSink sink;
    *sink.Extend(1) = 7;
    CHECK_THROWS(sink.Extend(size));
    CHECK(Holds(sink, {7}));
  }
}

TEST_CASE("a moved sink takes its bytes along") {
  ByteSink first;
  Append(first, {1, 2, 3});
  ByteSink second(std::move(first));
  CHECK(Holds(second, {1, 2, 3}));
  ByteSink third;
  Append(third, {9});
  third = std::move(second);
  CHECK(Holds(third, {1, 2, 3}));
}

}  // namespace
}  // namespace torchparquet::kernels
