#include "kernels/bit_unpack.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <array>
#include <utility>
#include <vector>

#include "draws.h"
#include "encoders/rle_bit_packed_encoder.h"
#include "exact_buffer.h"

namespace torchparquet::kernels {
namespace {

using testing::Draws;
using testing::ExactBuffer;

constexpr int kNumTrials = 50;

std::vector<uint32_t> RandomGroup(Draws& draws, int width) {
  std::vector<uint32_t> values(kGroupValues);
  for (uint32_t& value : values) {
    value = static_cast<uint32_t>(draws.Below(int64_t{1} << width));
  }
  return values;
}

// The group followed by random bytes that must not show in its values.
ExactBuffer<uint8_t> Readable(Draws& draws, const std::vector<uint32_t>& group,
                              int width) {
  std::vector<uint8_t> bytes = testing::PackBits(group, width);
  const auto rest = GroupReadableBytes(width) - static_cast<int64_t>(bytes.size());
  const std::vector<uint8_t> noise = testing::RandomBytes(draws, rest);
  bytes.insert(bytes.end(), noise.begin(), noise.end());
  return ExactBuffer<uint8_t>(bytes);
}

template <int kWidth>
void CheckWidth(Draws& draws) {
  CAPTURE(kWidth);
  for (int trial = 0; trial < kNumTrials; ++trial) {
    const std::vector<uint32_t> expected = RandomGroup(draws, kWidth);
    ExactBuffer<uint8_t> bytes = Readable(draws, expected, kWidth);

    std::vector<uint32_t> by_template(kGroupValues, ~0u);
    int calls = 0;
    UnpackGroup<kWidth>(bytes.data(), [&](int i, uint32_t value) {
      by_template[static_cast<size_t>(i)] = value;
      ++calls;
    });
    CHECK(calls == kGroupValues);
    CHECK(by_template == expected);

    std::vector<uint32_t> by_argument(kGroupValues, ~0u);
    UnpackGroup(bytes.data(), kWidth, by_argument.data());
    CHECK(by_argument == expected);
  }
}

TEST_CASE(
    "a group of every width unpacks to what was packed, within its readable bytes") {
  Draws draws(1);
  [&]<int... kWidths>(std::integer_sequence<int, kWidths...>) {
    (CheckWidth<kWidths>(draws), ...);
  }(std::make_integer_sequence<int, 33>());
}

TEST_CASE("the runs that one word serves lie within it") {
  CHECK(ValuesPerWord<0>() == 8);
  CHECK(ValuesPerWord<1>() == 8);
  CHECK(ValuesPerWord<8>() == 8);
  CHECK(ValuesPerWord<9>() == 4);
  CHECK(ValuesPerWord<16>() == 4);
  CHECK(ValuesPerWord<17>() == 2);
  CHECK(ValuesPerWord<32>() == 2);
}

TEST_CASE("UnpackBits writes every bit once and reads only their bytes") {
  Draws draws(11);
  for (int64_t end = 0; end <= 200; ++end) {
    ExactBuffer<uint8_t> bits(testing::RandomBytes(draws, (end + 7) / 8));
    for (int64_t begin = std::max<int64_t>(0, end - 150); begin <= end; ++begin) {
      std::vector<uint8_t> expected;
      for (int64_t i = begin; i < end; ++i) {
        expected.push_back((bits.data()[i / 8] >> (i % 8)) & 1);
      }
      ExactBuffer<uint8_t> out(static_cast<size_t>(end - begin));
      UnpackBits(bits.data(), begin, end - begin, out.data());
      CHECK(out.Copy() == expected);
    }
  }
}

}  // namespace
}  // namespace torchparquet::kernels
