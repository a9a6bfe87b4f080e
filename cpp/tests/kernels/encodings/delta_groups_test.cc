#include "kernels/encodings/delta_groups.h"

#include <doctest/doctest.h>

#include <vector>

#include "draws.h"
#include "exact_buffer.h"
#include "kernels/bit_unpack.h"

namespace torchparquet::kernels {
namespace {

using testing::Draws;
using testing::ExactBuffer;

// Value `index` of `width` bits, bit by bit.
uint64_t PackedValue(std::span<const uint8_t> bytes, size_t index, int width) {
  uint64_t value = 0;
  for (int bit = 0; bit < width; ++bit) {
    const size_t position = index * static_cast<size_t>(width) + static_cast<size_t>(bit);
    const uint64_t one = (bytes[position / 8] >> (position % 8)) & 1;
    value |= one << bit;
  }
  return value;
}

// Decodes random groups, within exactly the bytes that may be read.
template <typename T>
void CheckWidth(Draws& draws, int width) {
  CAPTURE(width);
  for (const int64_t num_groups : {0, 1, 2, 3, 17}) {
    const auto readable =
        num_groups > 0 ? (num_groups - 1) * width + GroupReadableBytes(width) : 0;
    ExactBuffer<uint8_t> in(testing::RandomBytes(draws, readable));
    const auto first = static_cast<T>(draws.Bits());
    const auto min_delta = static_cast<T>(draws.Bits());
    std::vector<T> expected;
    T last = first;
    for (size_t i = 0; i < static_cast<size_t>(num_groups * kGroupValues); ++i) {
      last += static_cast<T>(min_delta + PackedValue(in.span(), i, width));
      expected.push_back(last);
    }
    ExactBuffer<T> out(expected.size());
    const auto decode = ChooseDecodeDeltas<T>(width);
    CHECK(decode(in.data(), num_groups, min_delta, first, out.data()) == last);
    CHECK(out.Copy() == expected);
  }
}

TEST_CASE_TEMPLATE("every width unpacks and sums", T, uint32_t, uint64_t) {
  Draws draws(31);
  for (int width = 0; width <= static_cast<int>(8 * sizeof(T)); ++width) {
    CheckWidth<T>(draws, width);
  }
}

}  // namespace
}  // namespace torchparquet::kernels
