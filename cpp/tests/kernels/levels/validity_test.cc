#include "kernels/levels/validity.h"

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

int64_t DecodeValidity(std::span<const uint8_t> runs, int max_level, int64_t num_rows,
                       uint8_t* validity) {
  return ValidityReader(runs, max_level).Read(num_rows, validity);
}

using testing::Draws;
using testing::ExactBuffer;
using testing::RleBitPackedEncoder;
using testing::Throws;

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

TEST_CASE("random levels of every nesting depth") {
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

TEST_CASE("rows are read and skipped from every place") {
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
      ValidityReader reader(runs.span(), max_level);
      const auto middle = expected.begin() + begin;
      CHECK(reader.Skip(begin) == std::accumulate(expected.begin(), middle, int64_t{0}));
      const int64_t count = draws.Between(0, num_rows - begin);
      ExactBuffer<uint8_t> validity(static_cast<size_t>(count));
      CHECK(reader.Read(count, validity.data()) ==
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
    ValidityReader reader(encoder.bytes(), max_level);
    CHECK(reader.ValidRunRows() == 50);
    CHECK(reader.Skip(20) == 20);
    CHECK(reader.ValidRunRows() == 30);
    CHECK(reader.Skip(30) == 30);
    CHECK(reader.ValidRunRows() == 0);  // nulls
    CHECK(reader.Skip(3) == 0);
    CHECK(reader.ValidRunRows() == 0);  // packed
    CHECK(reader.Skip(8) == 8);
    CHECK(reader.ValidRunRows() == 0);  // the end
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

TEST_CASE("too few levels are an error, wherever the input is cut") {
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

TEST_CASE("a level above the greatest is an error") {
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
