#include "kernels/levels/bit_packed_levels.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <vector>

#include "draws.h"
#include "encoders/level_encoder.h"
#include "exact_buffer.h"
#include "kernels/levels/level_reader.h"

namespace torchparquet::kernels {
namespace {

using testing::Draws;
using testing::ExactBuffer;

// The levels of one packed run, by its definition. Checks that nothing follows.
std::vector<uint8_t> UnpackRun(std::span<const uint8_t> bytes, int width) {
  uint64_t header = 0;
  int shift = 0;
  size_t i = 0;
  do {
    header |= static_cast<uint64_t>(bytes[i] & 0x7F) << shift;
    shift += 7;
  } while ((bytes[i++] & 0x80) != 0);
  REQUIRE((header & 1) == 1);
  const auto num_levels = static_cast<size_t>(header >> 1) * 8;
  CHECK(bytes.size() - i == num_levels * static_cast<size_t>(width) / 8);
  std::vector<uint8_t> levels(num_levels);
  for (size_t bit = 0; bit < num_levels * static_cast<size_t>(width); ++bit) {
    const int value = bytes[i + bit / 8] >> (bit % 8) & 1;
    uint8_t& level = levels[bit / static_cast<size_t>(width)];
    level = static_cast<uint8_t>(level | value << (bit % static_cast<size_t>(width)));
  }
  return levels;
}

TEST_CASE("levels keep their values from one encoding to the other") {
  Draws draws(210);
  for (int width = 1; width <= 8; ++width) {
    for (const int64_t size : {0, 1, 2, 7, 8, 9, 63, 64, 65, 1000, 1027}) {
      CAPTURE(width);
      CAPTURE(size);
      std::vector<uint8_t> levels(static_cast<size_t>(size));
      for (uint8_t& level : levels) {
        level = static_cast<uint8_t>(draws.Below(int64_t{1} << width));
      }
      ExactBuffer<uint8_t> packed(testing::PackHighestFirst(levels, width));
      const BitPackedLevels from{
          .bytes = packed.span(), .width = width, .num_values = size};
      REQUIRE(from.NumBytes() == std::ssize(packed.span()));
      ExactBuffer<uint8_t> out(static_cast<size_t>(from.NumRunBytes()));
      std::fill(out.span().begin(), out.span().end(), uint8_t{0xDB});
      RepackLevels(from, out.data());
      std::vector<uint8_t> unpacked = UnpackRun(out.span(), width);
      REQUIRE(unpacked.size() >= levels.size());
      // The filling of the last group is no level.
      CHECK(std::count(unpacked.begin() + size, unpacked.end(), 0) ==
            std::ssize(unpacked) - size);
      unpacked.resize(levels.size());
      CHECK(unpacked == levels);
      LevelReader reader(out.span(), (1 << width) - 1);
      ExactBuffer<uint8_t> read(levels.size());
      reader.Read(size, read.data());
      CHECK(read.Copy() == levels);
    }
  }
}

TEST_CASE("the format's own example") {
  // 0 to 7 in three bits each.
  ExactBuffer<uint8_t> bytes(std::vector<uint8_t>{0b00000101, 0b00111001, 0b01110111});
  const BitPackedLevels from{.bytes = bytes.span(), .width = 3, .num_values = 8};
  ExactBuffer<uint8_t> out(static_cast<size_t>(from.NumRunBytes()));
  RepackLevels(from, out.data());
  CHECK(UnpackRun(out.span(), 3) == std::vector<uint8_t>{0, 1, 2, 3, 4, 5, 6, 7});
}

TEST_CASE("the number of levels may need every byte of the header") {
  // Of the lengths only: the bytes would take a quarter of a gigabyte.
  const BitPackedLevels most{.bytes = {}, .width = 8, .num_values = INT32_MAX};
  CHECK(most.NumBytes() == INT32_MAX);
  CHECK(most.NumRunBytes() == 5 + (int64_t{1} << 31));
  constexpr int64_t kSize = (int64_t{1} << 20) + 3;  // three bytes of header, of five
  ExactBuffer<uint8_t> bytes(std::vector<uint8_t>((kSize + 7) / 8, 0xFF));
  const BitPackedLevels many{.bytes = bytes.span(), .width = 1, .num_values = kSize};
  ExactBuffer<uint8_t> out(static_cast<size_t>(many.NumRunBytes()));
  RepackLevels(many, out.data());
  const std::vector<uint8_t> levels = UnpackRun(out.span(), 1);
  CHECK(std::count(levels.begin(), levels.end(), 1) == kSize);
}

}  // namespace
}  // namespace torchparquet::kernels
