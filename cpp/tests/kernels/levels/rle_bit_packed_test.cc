#include "kernels/levels/rle_bit_packed.h"

#include <doctest/doctest.h>

#include <optional>
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

uint32_t BitAt(std::span<const uint8_t> bytes, size_t position) {
  return (uint32_t{bytes[position / 8]} >> (position % 8)) & 1;
}

// All values of the runs, bit by bit.
std::vector<uint32_t> Expand(std::span<const uint8_t> bytes, int bit_width) {
  RleBitPackedReader reader(bytes, bit_width);
  RleBitPackedRun run;
  std::vector<uint32_t> values;
  while (reader.Next(&run)) {
    for (int64_t i = 0; i < run.num_values; ++i) {
      uint32_t value = run.packed ? 0 : run.value;
      for (int bit = 0; run.packed && bit < bit_width; ++bit) {
        value |= BitAt(run.bytes, static_cast<size_t>(i * bit_width + bit)) << bit;
      }
      values.push_back(value);
    }
  }
  return values;
}

TEST_CASE("random runs of every width") {
  Draws draws(5);
  for (int width = 0; width <= 32; ++width) {
    CAPTURE(width);
    for (int trial = 0; trial < 5; ++trial) {
      RleBitPackedEncoder encoder(width);
      encoder.AppendRandom(draws, 500, int64_t{1} << width);
      ExactBuffer<uint8_t> bytes(encoder.bytes());
      CHECK(Expand(bytes.span(), width) == encoder.values());
    }
  }
}

TEST_CASE("input cut at any byte gives a prefix or an error, and is never read past") {
  Draws draws(6);
  for (const int width : {0, 1, 3, 8, 13, 32}) {
    RleBitPackedEncoder encoder(width);
    encoder.AppendRandom(draws, 200, int64_t{1} << width);
    for (size_t size = 0; size < encoder.bytes().size(); ++size) {
      ExactBuffer<uint8_t> cut(std::span(encoder.bytes()).first(size));
      std::optional<std::vector<uint32_t>> values;
      const auto error = testing::Caught([&] { values = Expand(cut.span(), width); });
      if (error) {
        CHECK(error->kind() == ErrorKind::kCorruptFile);
      } else {
        REQUIRE(values->size() <= encoder.values().size());
        CHECK(std::equal(values->begin(), values->end(), encoder.values().begin()));
      }
    }
  }
}

TEST_CASE("a packed run that ends at its last value keeps the whole values") {
  const std::vector<uint32_t> group{1, 2, 3, 4, 5, 6, 7, 0};
  RleBitPackedEncoder encoder(3);
  encoder.AppendPacked(group);
  // Of three bytes two are left: 16 bits, five values.
  ExactBuffer<uint8_t> cut(std::span(encoder.bytes()).first(3));
  CHECK(Expand(cut.span(), 3) == std::vector<uint32_t>{1, 2, 3, 4, 5});
}

TEST_CASE("a run header of more than 32 bits is an error") {
  for (const std::vector<uint8_t>& header :
       std::vector<std::vector<uint8_t>>{{0xFF, 0xFF, 0xFF, 0xFF, 0x1F},
                                         {0xFF, 0xFF, 0xFF, 0xFF, 0xFF},
                                         {0x80, 0x80, 0x80, 0x80, 0x80, 0x01},
                                         {0x80}}) {
    ExactBuffer<uint8_t> bytes(header);
    CHECK(Throws(ErrorKind::kCorruptFile, [&] { Expand(bytes.span(), 8); }));
  }
}

TEST_CASE("the longest runs are announced without being touched") {
  const std::vector<uint8_t> packed{0xFF, 0xFF, 0xFF, 0xFF, 0x0F, 0xAB};
  ExactBuffer<uint8_t> bytes(packed);
  RleBitPackedReader reader(bytes.span(), 1);
  RleBitPackedRun run;
  REQUIRE(reader.Next(&run));
  CHECK(run.packed);
  CHECK(run.num_values == 8);
  CHECK(run.bytes.size() == 1);
  CHECK_FALSE(reader.Next(&run));

  const std::vector<uint8_t> repeated{0xFE, 0xFF, 0xFF, 0xFF, 0x0F, 0x01};
  ExactBuffer<uint8_t> repeated_bytes(repeated);
  RleBitPackedReader repeated_reader(repeated_bytes.span(), 1);
  REQUIRE(repeated_reader.Next(&run));
  CHECK_FALSE(run.packed);
  CHECK(run.num_values == INT32_MAX);
  CHECK(run.value == 1);
}

TEST_CASE("bit widths outside 0 to 32 are errors") {
  for (const int width : {-1, 33, 255}) {
    CHECK(Throws(ErrorKind::kCorruptFile, [&] { RleBitPackedReader({}, width); }));
  }
}

}  // namespace
}  // namespace torchparquet::kernels
