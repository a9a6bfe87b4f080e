#include "kernels/levels/level_reader.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <bit>
#include <vector>

#include "caught.h"
#include "draws.h"
#include "encoders/rle_bit_packed_encoder.h"
#include "exact_buffer.h"

namespace torchparquet::kernels {
namespace {

using testing::Draws;
using testing::ExactBuffer;
using testing::RleBitPackedEncoder;
using testing::Throws;

int WidthOf(int max_level) {
  return static_cast<int>(std::bit_width(static_cast<unsigned>(max_level)));
}

// Levels as runs, and for each level the end of the repeated run that it is in, or 0.
struct Levels {
  std::vector<uint8_t> bytes;
  std::vector<uint32_t> values;
  std::vector<int64_t> run_end;
};

Levels RandomLevels(Draws& draws, int max_level, int64_t num_runs) {
  RleBitPackedEncoder encoder(WidthOf(max_level));
  Levels levels;
  for (int64_t i = 0; i < num_runs; ++i) {
    const auto draw = [&] { return static_cast<uint32_t>(draws.Below(max_level + 1)); };
    if (draws.OneIn(2)) {
      encoder.AppendRepeated(draw(), draws.OneIn(5) ? draws.Below(2000) : draws.Below(9));
      levels.run_end.resize(encoder.values().size(), std::ssize(encoder.values()));
    } else {
      std::vector<uint32_t> packed(
          static_cast<size_t>(8 * (draws.OneIn(5) ? draws.Below(200) : draws.Below(4))));
      for (uint32_t& level : packed) level = draw();
      encoder.AppendPacked(packed);
      levels.run_end.resize(encoder.values().size(), 0);
    }
  }
  levels.bytes = encoder.bytes();
  levels.values = encoder.values();
  return levels;
}

// Reads and passes over `levels` in random steps. Returns how many came out wrong.
int64_t NumWrong(Draws& draws, LevelReader& reader, const Levels& levels) {
  const auto num_levels = std::ssize(levels.values);
  int64_t num_wrong = 0;
  for (int64_t position = 0; position < num_levels;) {
    const auto first = static_cast<size_t>(position);
    const int64_t count = draws.Between(
        0, std::min(num_levels - position, draws.OneIn(4) ? 3000 : int64_t{11}));
    if (draws.OneIn(3)) {
      const int64_t run =
          levels.run_end[first] == 0 ? 0 : levels.run_end[first] - position;
      for (const uint32_t level : {uint32_t{0}, uint32_t{1}, levels.values[first]}) {
        num_wrong += reader.RunOf(static_cast<int>(level)) !=
                     (level == levels.values[first] ? run : 0);
      }
    }
    if (draws.OneIn(3)) {
      reader.Skip(count);
    } else {
      ExactBuffer<uint8_t> out(static_cast<size_t>(count));
      reader.Read(count, out.data());
      num_wrong += !std::equal(out.span().begin(), out.span().end(),
                               levels.values.begin() + position);
    }
    position += count;
  }
  return num_wrong;
}

TEST_CASE("levels of every width, in random steps") {
  Draws draws(200);
  for (const int max_level :
       {1, 2, 3, 4, 5, 7, 8, 15, 31, 32, 63, 64, 127, 128, 254, 255}) {
    CAPTURE(max_level);
    for (int trial = 0; trial < 30; ++trial) {
      const Levels levels = RandomLevels(draws, max_level, draws.Between(0, 12));
      ExactBuffer<uint8_t> bytes(levels.bytes);
      LevelReader reader(bytes.span(), max_level);
      CHECK(NumWrong(draws, reader, levels) == 0);
      CHECK(reader.RunOf(0) == 0);
      CHECK(reader.RunOf(max_level) == 0);
      uint8_t out;
      CHECK(Throws(ErrorKind::kCorruptFile, [&] { reader.Read(1, &out); }));
      CHECK(Throws(ErrorKind::kCorruptFile, [&] { reader.Skip(1); }));
      reader.Read(0, nullptr);
      reader.Skip(0);
    }
  }
}

TEST_CASE("a last packed run may end with its last level") {
  Draws draws(201);
  for (const int max_level : {1, 2, 3, 4, 7, 12, 31, 40, 127, 255}) {
    const int width = WidthOf(max_level);
    for (int64_t num_levels = 1; num_levels <= 24; ++num_levels) {
      RleBitPackedEncoder encoder(width);
      std::vector<uint32_t> packed(static_cast<size_t>((num_levels + 7) / 8 * 8));
      for (uint32_t& level : packed) {
        level = static_cast<uint32_t>(draws.Below(max_level + 1));
      }
      encoder.AppendPacked(packed);
      const auto num_bytes = static_cast<size_t>(1 + (num_levels * width + 7) / 8);
      ExactBuffer<uint8_t> bytes(std::span(encoder.bytes()).first(num_bytes));
      // As many whole levels as the bytes hold.
      const int64_t available = static_cast<int64_t>(num_bytes - 1) * 8 / width;
      Levels levels{encoder.bytes(), packed, {}};
      levels.values.resize(static_cast<size_t>(std::min(available, std::ssize(packed))));
      levels.run_end.resize(levels.values.size());
      LevelReader reader(bytes.span(), max_level);
      CHECK(NumWrong(draws, reader, levels) == 0);
      CHECK(Throws(ErrorKind::kCorruptFile, [&] { reader.Skip(1); }));
    }
  }
}

TEST_CASE("a level above the highest is an error, wherever it stands") {
  for (const int max_level : {2, 4, 5, 6, 9, 20, 100, 254}) {
    CAPTURE(max_level);
    const auto bad = static_cast<uint32_t>(max_level + 1);
    for (int64_t place = 0; place < 24; ++place) {
      RleBitPackedEncoder packed(WidthOf(max_level));
      std::vector<uint32_t> levels(24, static_cast<uint32_t>(max_level));
      levels[static_cast<size_t>(place)] = bad;
      packed.AppendPacked(levels);
      for (const bool skips : {false, true}) {
        ExactBuffer<uint8_t> bytes(packed.bytes());
        LevelReader reader(bytes.span(), max_level);
        ExactBuffer<uint8_t> out(24);
        const auto take = [&](int64_t count) {
          skips ? reader.Skip(count) : reader.Read(count, out.data());
        };
        take(place);
        CHECK(Throws(ErrorKind::kCorruptFile, [&] { take(1); }));
      }
    }
    RleBitPackedEncoder repeated(WidthOf(max_level));
    repeated.AppendRepeated(static_cast<uint32_t>(max_level), 5);
    repeated.AppendRepeated(bad, 0);  // says nothing of any entry
    repeated.AppendRepeated(bad, 1);
    ExactBuffer<uint8_t> bytes(repeated.bytes());
    LevelReader reader(bytes.span(), max_level);
    reader.Skip(5);
    CHECK(Throws(ErrorKind::kCorruptFile, [&] { reader.RunOf(max_level); }));
    LevelReader other(bytes.span(), max_level);
    CHECK(Throws(ErrorKind::kCorruptFile, [&] { other.Skip(6); }));
  }
}

TEST_CASE("levels cut at any byte are an error") {
  Draws draws(202);
  for (const int max_level : {1, 3, 6, 200}) {
    RleBitPackedEncoder encoder(WidthOf(max_level));
    encoder.AppendRandom(draws, 200, max_level + 1);
    const auto num_levels = std::ssize(encoder.values());
    for (size_t size = 0; size + 1 < encoder.bytes().size(); ++size) {
      ExactBuffer<uint8_t> bytes(std::span(encoder.bytes()).first(size));
      ExactBuffer<uint8_t> out(static_cast<size_t>(num_levels) + 1);
      LevelReader reader(bytes.span(), max_level);
      CHECK(Throws(ErrorKind::kCorruptFile,
                   [&] { reader.Read(num_levels + 1, out.data()); }));
    }
  }
}

TEST_CASE("what is nested too deeply is refused") {
  for (const int max_level : {-1, 0, 256, 1000}) {
    CHECK(Throws(ErrorKind::kNotSupported, [&] { LevelReader({}, max_level); }));
  }
  LevelReader none;
  CHECK(none.RunOf(0) == 0);
  CHECK(Throws(ErrorKind::kCorruptFile, [&] { none.Skip(1); }));
}

}  // namespace
}  // namespace torchparquet::kernels
