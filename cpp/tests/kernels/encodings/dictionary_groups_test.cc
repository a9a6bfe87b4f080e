#include "kernels/encodings/dictionary_groups.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <span>
#include <vector>

#include "draws.h"
#include "encoders/rle_bit_packed_encoder.h"
#include "exact_buffer.h"
#include "kernels/bit_unpack.h"

namespace torchparquet::kernels {
namespace {

using testing::Draws;
using testing::ExactBuffer;

// A dictionary that every index of its width can address costs memory: widths above
// this one are tested with small indices only, in place of a full dictionary.
constexpr int kMaxFullWidth = 12;

// Checks one variant on random groups, within exactly the bytes that it may read.
template <typename T>
void CheckVariant(Draws& draws, DecodeGroupsFunction<T> decode, int width) {
  const int64_t num_indices = int64_t{1} << std::min(width, kMaxFullWidth);
  ExactBuffer<T> dictionary(static_cast<size_t>(num_indices));
  for (T& value : dictionary.span()) value = static_cast<T>(draws.Bits());
  for (const int64_t num_groups : {0, 1, 2, 3, 17}) {
    std::vector<uint32_t> indices(static_cast<size_t>(num_groups * kGroupValues));
    for (uint32_t& index : indices)
      index = static_cast<uint32_t>(draws.Below(num_indices));
    std::vector<uint8_t> packed = testing::PackBits(indices, width);
    const auto readable =
        num_groups > 0 ? (num_groups - 1) * width + GroupReadableBytes(width) : 0;
    const std::vector<uint8_t> noise =
        testing::RandomBytes(draws, readable - static_cast<int64_t>(packed.size()));
    packed.insert(packed.end(), noise.begin(), noise.end());
    ExactBuffer<uint8_t> in(packed);
    // Aligned for variants with streaming stores.
    std::vector<T> memory(indices.size() + kStreamingAlignment / sizeof(T));
    const auto misaligned =
        reinterpret_cast<uintptr_t>(memory.data()) % kStreamingAlignment;
    const std::span<T> out(
        memory.data() +
            (misaligned == 0 ? 0 : (kStreamingAlignment - misaligned) / sizeof(T)),
        indices.size());
    const auto run = [&](int64_t limit) {
      const bool beyond =
          decode(in.data(), num_groups, dictionary.data(), limit, out.data());
      EndStreamingStores();
      return beyond;
    };

    CHECK_FALSE(run(num_indices - 1));
    std::vector<T> expected;
    for (const uint32_t index : indices) expected.push_back(dictionary.data()[index]);
    CHECK(std::ranges::equal(out, expected));
    if (indices.empty()) continue;
    const int64_t greatest = *std::max_element(indices.begin(), indices.end());
    CHECK_FALSE(run(greatest));
    CHECK(run(greatest - 1));
    CHECK(run(-1));
  }
}

TEST_CASE_TEMPLATE("every variant of every width looks up and checks", T, uint8_t,
                   uint16_t, uint32_t, uint64_t) {
  Draws draws(14);
  for (int width = 0; width <= 32; ++width) {
    CAPTURE(width);
    CheckVariant<T>(draws, PlainDecodeGroups<T>(width), width);
    CheckVariant<T>(draws, ChooseDecodeGroups<T>(width), width);
    const auto avx2 = Avx2DecodeGroups<T>(width);
    if (avx2 != nullptr) CheckVariant<T>(draws, avx2, width);
    const auto streaming = ChooseDecodeGroupsStreaming<T>(width);
    if (streaming != nullptr) CheckVariant<T>(draws, streaming, width);
  }
}

// Calls `decode` once per value of the group, with that value illegal and all others 0.
template <typename T>
void CheckEveryPlace(DecodeGroupsFunction<T> decode, int width) {
  const auto illegal = static_cast<uint32_t>((int64_t{1} << width) - 1);
  for (size_t place = 0; place < 3 * kGroupValues; ++place) {
    std::vector<uint32_t> indices(3 * kGroupValues);
    indices[place] = illegal;
    std::vector<uint8_t> packed = testing::PackBits(indices, width);
    packed.resize(static_cast<size_t>(2 * width + GroupReadableBytes(width)));
    ExactBuffer<uint8_t> in(packed);
    ExactBuffer<T> dictionary(size_t{1} << width);
    ExactBuffer<T> out(indices.size());
    CHECK(decode(in.data(), 3, dictionary.data(), int64_t{illegal} - 1, out.data()));
    CHECK_FALSE(decode(in.data(), 3, dictionary.data(), illegal, out.data()));
  }
}

TEST_CASE("an illegal index is noticed at every place of a group") {
  for (int width = 1; width <= kMaxFullWidth; ++width) {
    CAPTURE(width);
    CheckEveryPlace<uint32_t>(PlainDecodeGroups<uint32_t>(width), width);
    const auto avx2 = Avx2DecodeGroups<uint32_t>(width);
    if (avx2 != nullptr) CheckEveryPlace<uint32_t>(avx2, width);
  }
}

}  // namespace
}  // namespace torchparquet::kernels
