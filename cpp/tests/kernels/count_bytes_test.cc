#include "kernels/count_bytes.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <vector>

#include "draws.h"
#include "exact_buffer.h"

namespace torchparquet::kernels {
namespace {

TEST_CASE("bytes are counted one by one") {
  testing::Draws draws(5);
  for (const int64_t size : {0, 1, 15, 16, 17, 100, 4079, 4080, 4081, 20'000}) {
    for (const int64_t most : {1, 2, 4, 255}) {
      std::vector<uint8_t> bytes(static_cast<size_t>(size));
      for (uint8_t& byte : bytes) byte = static_cast<uint8_t>(draws.Between(0, most));
      testing::ExactBuffer<uint8_t> exact(bytes);
      for (const int64_t value : {int64_t{0}, int64_t{1}, most / 2, most}) {
        const auto byte = static_cast<uint8_t>(value);
        CHECK(CountEqual(exact.data(), size, byte) ==
              std::count(bytes.begin(), bytes.end(), byte));
        CHECK(CountAtLeast(exact.data(), size, byte) ==
              std::count_if(bytes.begin(), bytes.end(),
                            [&](uint8_t one) { return one >= byte; }));
        std::vector<uint8_t> expected(bytes.size());
        for (size_t i = 0; i < bytes.size(); ++i) expected[i] = bytes[i] == byte;
        testing::ExactBuffer<uint8_t> marks(std::vector<uint8_t>(bytes.size(), 7));
        MarkEqual(exact.data(), size, byte, marks.data());
        CHECK(std::equal(expected.begin(), expected.end(), marks.data()));
      }
    }
  }
}

TEST_CASE("a value among 64 bytes") {
  testing::Draws draws(6);
  for (int trial = 0; trial < 1000; ++trial) {
    const auto value = static_cast<uint8_t>(draws.OneIn(2) ? 0 : draws.Below(256));
    std::vector<uint8_t> bytes(64);
    for (uint8_t& byte : bytes) {
      byte = static_cast<uint8_t>(draws.OneIn(3) ? value : draws.Below(256));
    }
    testing::ExactBuffer<uint8_t> exact(bytes);
    uint64_t expected = 0;
    for (size_t i = 0; i < 64; ++i) {
      if (bytes[i] == value) expected |= uint64_t{1} << i;
    }
    CHECK(EqualBytes(exact.data(), value) == expected);
  }
}

TEST_CASE("bytes that all count") {
  const std::vector<uint8_t> bytes(10'000, 255);
  CHECK(CountEqual(bytes.data(), 10'000, 255) == 10'000);
  CHECK(CountAtLeast(bytes.data(), 10'000, 0) == 10'000);
}

}  // namespace
}  // namespace torchparquet::kernels
