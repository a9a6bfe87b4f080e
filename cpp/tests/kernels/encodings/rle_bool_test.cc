#include "kernels/encodings/rle_bool.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <vector>

#include "caught.h"
#include "draws.h"
#include "encoders/arrow_encodings.h"
#include "encoders/rle_bit_packed_encoder.h"
#include "exact_buffer.h"

namespace torchparquet::kernels {
namespace {

using testing::ArrowEncoding;
using testing::Draws;
using testing::ExactBuffer;
using testing::RleBitPackedEncoder;
using testing::Throws;

std::vector<uint8_t> WithLength(const std::vector<uint8_t>& runs, size_t length) {
  std::vector<uint8_t> bytes;
  for (int i = 0; i < 4; ++i) bytes.push_back(static_cast<uint8_t>(length >> (8 * i)));
  bytes.insert(bytes.end(), runs.begin(), runs.end());
  return bytes;
}

// Reads and skips in random steps, and checks what was read.
void CheckSteps(Draws& draws, std::span<const uint8_t> bytes,
                const std::vector<uint8_t>& expected) {
  RleBoolReader reader(bytes);
  size_t position = 0;
  while (position < expected.size()) {
    const auto left = static_cast<int64_t>(expected.size() - position);
    const auto count = static_cast<size_t>(
        draws.Between(0, std::min<int64_t>(left, draws.OneIn(3) ? 90 : 11)));
    if (draws.OneIn(2)) {
      reader.Skip(static_cast<int64_t>(count));
    } else {
      ExactBuffer<uint8_t> out(count);
      reader.Read(out.data(), static_cast<int64_t>(count));
      CHECK(std::equal(out.data(), out.data() + count, expected.data() + position));
    }
    position += count;
  }
}

TEST_CASE("random runs, in random steps") {
  Draws draws(51);
  for (int trial = 0; trial < 100; ++trial) {
    RleBitPackedEncoder encoder(1);
    encoder.AppendRandom(draws, draws.Below(700), 2);
    const std::vector<uint8_t> values(encoder.values().begin(), encoder.values().end());
    std::vector<uint8_t> encoded = WithLength(encoder.bytes(), encoder.bytes().size());
    // Bytes after those that the length counts are not theirs.
    encoded.resize(encoded.size() + static_cast<size_t>(draws.Below(5)), 0xFF);
    ExactBuffer<uint8_t> bytes(encoded);
    CheckSteps(draws, bytes.span(), values);
    RleBoolReader reader(bytes.span());
    reader.Skip(static_cast<int64_t>(values.size()));
    uint8_t one;
    CHECK(Throws(ErrorKind::kCorruptFile, [&] { reader.Read(&one, 1); }));
    CHECK(Throws(ErrorKind::kCorruptFile, [&] { reader.Skip(1); }));
  }
}

TEST_CASE("what Arrow encodes") {
  Draws draws(52);
  for (const size_t size : {0, 1, 7, 8, 9, 64, 1000}) {
    for (const int64_t one_in : {1, 2, 50, 1 << 30}) {
      std::vector<uint8_t> values(size);
      for (uint8_t& value : values) value = draws.OneIn(one_in);
      ExactBuffer<uint8_t> bytes(
          testing::ArrowEncode<uint8_t>(ArrowEncoding::kRle, values));
      CheckSteps(draws, bytes.span(), values);
      ExactBuffer<uint8_t> out(size);
      RleBoolReader(bytes.span()).Read(out.data(), static_cast<int64_t>(size));
      CHECK(out.Copy() == values);
      CHECK(testing::ArrowDecode<uint8_t>(ArrowEncoding::kRle, bytes.span(),
                                          static_cast<int64_t>(size)) == values);
    }
  }
}

TEST_CASE("input cut at any byte is an error, values before it are right") {
  Draws draws(53);
  RleBitPackedEncoder encoder(1);
  encoder.AppendRandom(draws, 500, 2);
  encoder.AppendPacked(std::vector<uint32_t>(64, 1));
  for (size_t size = 0; size < encoder.bytes().size(); ++size) {
    const std::vector<uint8_t> runs(encoder.bytes().begin(),
                                    encoder.bytes().begin() + static_cast<int64_t>(size));
    ExactBuffer<uint8_t> lying(WithLength(runs, encoder.bytes().size()));
    CHECK(Throws(ErrorKind::kCorruptFile, [&] { RleBoolReader(lying.span()); }));
    ExactBuffer<uint8_t> cut(WithLength(runs, size));
    RleBoolReader reader(cut.span());
    CHECK(Throws(ErrorKind::kCorruptFile, [&] {
      for (const uint32_t expected : encoder.values()) {
        uint8_t value;
        reader.Read(&value, 1);
        REQUIRE(value == expected);
      }
    }));
  }
  for (size_t size = 0; size < 4; ++size) {
    ExactBuffer<uint8_t> cut(size);
    CHECK(Throws(ErrorKind::kCorruptFile, [&] { RleBoolReader(cut.span()); }));
  }
}

TEST_CASE("damaged input gives 0 and 1 or the one kind of error") {
  Draws draws(54);
  for (int trial = 0; trial < 3000; ++trial) {
    RleBitPackedEncoder encoder(1);
    encoder.AppendRandom(draws, 200, 2);
    std::vector<uint8_t> damaged = WithLength(encoder.bytes(), encoder.bytes().size());
    for (int64_t i = draws.Between(1, 3); i > 0; --i) {
      damaged[static_cast<size_t>(draws.Below(static_cast<int64_t>(damaged.size())))] =
          static_cast<uint8_t>(draws.Bits());
    }
    ExactBuffer<uint8_t> bytes(damaged);
    const auto error = testing::Caught([&] {
      RleBoolReader reader(bytes.span());
      ExactBuffer<uint8_t> out(200);
      reader.Read(out.data(), 200);
      CHECK(*std::max_element(out.data(), out.data() + 200) <= 1);
    });
    if (error) CHECK(error->kind() == ErrorKind::kCorruptFile);
  }
}

}  // namespace
}  // namespace torchparquet::kernels
