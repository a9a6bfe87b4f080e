#include "kernels/levels/level_reader.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <bit>
#include <numeric>
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
int64_t NumWrong(Draws& draws, LevelReader& reader, const Levels& levels,
                 uint32_t max_level) {
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
      const auto next = levels.values.begin() + position;
      num_wrong += reader.Skip(count) != std::count(next, next + count, max_level);
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
      CHECK(NumWrong(draws, reader, levels, static_cast<uint32_t>(max_level)) == 0);
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
      CHECK(NumWrong(draws, reader, levels, static_cast<uint32_t>(max_level)) == 0);
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
          skips ? void(reader.Skip(count)) : reader.Read(count, out.data());
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

int64_t DecodeValidity(std::span<const uint8_t> runs, int max_level, int64_t num_rows,
                       uint8_t* validity) {
  return LevelReader(runs, max_level).ReadValidity(num_rows, validity);
}

TEST_CASE("validity at every depth of nesting") {
  Draws draws(12);
  for (const int max_level : {1, 2, 3, 4, 7, 8, 31, 100}) {
    CAPTURE(max_level);
    for (int trial = 0; trial < 20; ++trial) {
      RleBitPackedEncoder encoder(std::bit_width(static_cast<unsigned>(max_level)));
      encoder.AppendRepeated(0, 1);  // so that no single run holds all rows
      encoder.AppendRandom(draws, 300, max_level + 1);
      const auto num_rows =
          draws.Between(2, static_cast<int64_t>(encoder.values().size()));
      std::vector<uint8_t> expected;
      for (int64_t row = 0; row < num_rows; ++row) {
        expected.push_back(encoder.values()[static_cast<size_t>(row)] ==
                           static_cast<uint32_t>(max_level));
      }
      ExactBuffer<uint8_t> runs(encoder.bytes());
      ExactBuffer<uint8_t> validity(static_cast<size_t>(num_rows));
      const int64_t num_valid =
          DecodeValidity(runs.span(), max_level, num_rows, validity.data());
      CHECK(num_valid == std::accumulate(expected.begin(), expected.end(), int64_t{0}));
      CHECK(validity.Copy() == expected);
    }
  }
}

TEST_CASE("validity is read and skipped from every place") {
  Draws draws(14);
  for (const int max_level : {1, 2, 5}) {
    RleBitPackedEncoder encoder(std::bit_width(static_cast<unsigned>(max_level)));
    encoder.AppendRandom(draws, 400, max_level + 1);
    std::vector<uint8_t> expected;
    for (const uint32_t level : encoder.values()) {
      expected.push_back(level == static_cast<uint32_t>(max_level));
    }
    const auto num_rows = static_cast<int64_t>(expected.size());
    ExactBuffer<uint8_t> runs(encoder.bytes());
    for (int64_t begin = 0; begin < num_rows; ++begin) {
      LevelReader reader(runs.span(), max_level);
      const auto middle = expected.begin() + begin;
      CHECK(reader.Skip(begin) == std::accumulate(expected.begin(), middle, int64_t{0}));
      const int64_t count = draws.Between(0, num_rows - begin);
      ExactBuffer<uint8_t> validity(static_cast<size_t>(count));
      CHECK(reader.ReadValidity(count, validity.data()) ==
            std::accumulate(middle, middle + count, int64_t{0}));
      CHECK(validity.Copy() == std::vector<uint8_t>(middle, middle + count));
    }
  }
}

TEST_CASE("a repeated run of present values is known as one") {
  for (const int max_level : {1, 3}) {
    RleBitPackedEncoder encoder(std::bit_width(static_cast<unsigned>(max_level)));
    encoder.AppendRepeated(0, 0);
    encoder.AppendRepeated(static_cast<uint32_t>(max_level), 50);
    encoder.AppendRepeated(0, 3);
    encoder.AppendPacked(std::vector<uint32_t>(8, static_cast<uint32_t>(max_level)));
    LevelReader reader(encoder.bytes(), max_level);
    CHECK(reader.ValidRun() == 50);
    CHECK(reader.Skip(20) == 20);
    CHECK(reader.ValidRun() == 30);
    CHECK(reader.Skip(30) == 30);
    CHECK(reader.ValidRun() == 0);  // nulls
    CHECK(reader.Skip(3) == 0);
    CHECK(reader.ValidRun() == 0);  // packed
    CHECK(reader.Skip(8) == 8);
    CHECK(reader.ValidRun() == 0);  // the end
  }
}

TEST_CASE("all rows null, and all rows present in several runs") {
  RleBitPackedEncoder nulls(1);
  nulls.AppendRepeated(0, 40);
  ExactBuffer<uint8_t> validity(40);
  CHECK(DecodeValidity(nulls.bytes(), 1, 40, validity.data()) == 0);
  CHECK(validity.Copy() == std::vector<uint8_t>(40, 0));

  RleBitPackedEncoder present(1);
  present.AppendRepeated(1, 16);
  present.AppendPacked(std::vector<uint32_t>(24, 1));
  CHECK(DecodeValidity(present.bytes(), 1, 40, validity.data()) == 40);
  CHECK(validity.Copy() == std::vector<uint8_t>(40, 1));
  CHECK(DecodeValidity({}, 1, 0, nullptr) == 0);
}

TEST_CASE("validity of too few levels is an error, wherever the input is cut") {
  Draws draws(13);
  for (const int max_level : {1, 2, 5}) {
    RleBitPackedEncoder encoder(std::bit_width(static_cast<unsigned>(max_level)));
    encoder.AppendRandom(draws, 200, max_level + 1);
    encoder.AppendRepeated(1, 1);
    const auto num_rows = static_cast<int64_t>(encoder.values().size());
    for (size_t size = 0; size < encoder.bytes().size(); ++size) {
      ExactBuffer<uint8_t> cut(std::span(encoder.bytes()).first(size));
      ExactBuffer<uint8_t> validity(static_cast<size_t>(num_rows));
      CHECK(Throws(ErrorKind::kCorruptFile, [&] {
        DecodeValidity(cut.span(), max_level, num_rows, validity.data());
      }));
    }
  }
}

TEST_CASE("no level above the highest has a validity") {
  for (const int max_level : {1, 2, 4, 6}) {
    const int width = std::bit_width(static_cast<unsigned>(max_level));
    RleBitPackedEncoder repeated(width);
    repeated.AppendRepeated(static_cast<uint32_t>(max_level) + 1, 8);
    ExactBuffer<uint8_t> validity(8);
    CHECK(Throws(ErrorKind::kCorruptFile, [&] {
      DecodeValidity(repeated.bytes(), max_level, 8, validity.data());
    }));
    if (max_level == 1) continue;  // one bit cannot say 2
    std::vector<uint32_t> levels(8);
    levels[5] = static_cast<uint32_t>(max_level) + 1;
    RleBitPackedEncoder packed(width);
    packed.AppendPacked(levels);
    CHECK(Throws(ErrorKind::kCorruptFile,
                 [&] { DecodeValidity(packed.bytes(), max_level, 8, validity.data()); }));
    CHECK(DecodeValidity(packed.bytes(), max_level, 5, validity.data()) == 0);
  }
}

}  // namespace
}  // namespace torchparquet::kernels
