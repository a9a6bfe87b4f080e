#include "kernels/encodings/delta_binary_packed.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <limits>
#include <optional>
#include <type_traits>
#include <vector>

#include "caught.h"
#include "draws.h"
#include "encoders/arrow_encodings.h"
#include "encoders/delta_encoder.h"
#include "exact_buffer.h"

namespace torchparquet::kernels {
namespace {

using testing::ArrowEncoding;
using testing::DeltaEncoder;
using testing::Draws;
using testing::ExactBuffer;
using testing::Throws;

template <typename T>
std::vector<T> ReadAll(std::span<const uint8_t> bytes) {
  DeltaBinaryPackedReader<T> reader(bytes);
  ExactBuffer<T> out(static_cast<size_t>(reader.num_values()));
  reader.Read(out.data(), reader.num_values());
  return out.Copy();
}

// Reads and skips in random steps, checks what was read, and that nothing follows but
// `num_rest` bytes.
template <typename T>
void CheckSteps(Draws& draws, std::span<const uint8_t> bytes,
                const std::vector<T>& expected, size_t num_rest) {
  DeltaBinaryPackedReader<T> reader(bytes);
  REQUIRE(reader.num_values() == static_cast<int64_t>(expected.size()));
  size_t position = 0;
  while (position < expected.size()) {
    CHECK(Throws(ErrorKind::kInternal, [&] { reader.Rest(); }));
    const auto left = static_cast<int64_t>(expected.size() - position);
    const auto count = static_cast<size_t>(
        draws.Between(0, std::min<int64_t>(left, draws.OneIn(3) ? 400 : 20)));
    if (draws.OneIn(3)) {
      reader.Skip(static_cast<int64_t>(count));
    } else {
      ExactBuffer<T> out(count);
      reader.Read(out.data(), static_cast<int64_t>(count));
      CHECK(std::equal(out.data(), out.data() + count, expected.data() + position));
    }
    position += count;
  }
  T one;
  CHECK(Throws(ErrorKind::kCorruptFile, [&] { reader.Read(&one, 1); }));
  CHECK(Throws(ErrorKind::kCorruptFile, [&] { reader.Skip(1); }));
  CHECK(reader.Rest().size() == num_rest);
  CHECK(reader.Rest().data() + num_rest == bytes.data() + bytes.size());
}

// Values of every shape that gives other bit widths.
template <typename T>
std::vector<std::vector<T>> Shapes(Draws& draws, size_t num_values) {
  using Limits = std::numeric_limits<std::make_signed_t<T>>;
  std::vector<std::vector<T>> shapes;
  const auto add = [&](auto value) {
    std::vector<T> values(num_values);
    for (size_t i = 0; i < num_values; ++i) values[i] = static_cast<T>(value(i));
    shapes.push_back(values);
  };
  add([](size_t) { return -7; });
  add([](size_t i) { return i; });
  add([](size_t i) { return i * 1000003; });
  add([](size_t i) { return 0 - i * i; });
  add([&](size_t) { return draws.Bits(); });
  add([&](size_t) { return draws.Below(200); });
  add([&](size_t i) { return 8 * i + static_cast<size_t>(draws.Below(9)); });
  add([](size_t i) { return i % 2 == 0 ? Limits::min() : Limits::max(); });
  add([&](size_t) { return draws.OneIn(2) ? Limits::min() : Limits::max(); });
  // Each miniblock another width.
  add([&](size_t i) { return draws.Bits() >> (i / 32 % 64); });
  add([&](size_t i) { return i / 150 % 2 == 0 ? 5 : draws.Below(1 << 20); });
  return shapes;
}

constexpr size_t kSizes[] = {0, 1, 2, 8, 9, 32, 33, 34, 128, 129, 130, 257, 1000};

TEST_CASE_TEMPLATE("what Arrow encodes, in random steps", T, uint32_t, uint64_t) {
  Draws draws(21);
  for (const size_t size : kSizes) {
    for (const std::vector<T>& values : Shapes<T>(draws, size)) {
      CAPTURE(size);
      ExactBuffer<uint8_t> bytes(
          testing::ArrowEncode<T>(ArrowEncoding::kDeltaBinaryPacked, values));
      CHECK(ReadAll<T>(bytes.span()) == values);
      CheckSteps<T>(draws, bytes.span(), values, 0);
    }
  }
}

TEST_CASE_TEMPLATE("what other writers encode, as Arrow reads it", T, uint32_t,
                   uint64_t) {
  Draws draws(22);
  for (const size_t size : kSizes) {
    for (const std::vector<T>& values : Shapes<T>(draws, size)) {
      DeltaEncoder<T> encoder;
      encoder.block_values = 128 * draws.Between(1, 3);
      encoder.num_miniblocks = int64_t{1} << draws.Below(3);
      encoder.unused_width = static_cast<uint8_t>(draws.Bits());
      CAPTURE(size);
      CAPTURE(encoder.block_values);
      CAPTURE(encoder.num_miniblocks);
      std::vector<uint8_t> encoded = encoder.Encode(values);
      CHECK(testing::ArrowDecode<T>(ArrowEncoding::kDeltaBinaryPacked, encoded,
                                    static_cast<int64_t>(size)) == values);
      ExactBuffer<uint8_t> bytes(encoded);
      CHECK(ReadAll<T>(bytes.span()) == values);
      CheckSteps<T>(draws, bytes.span(), values, 0);

      // Bytes may follow.
      const auto num_rest = static_cast<size_t>(draws.Below(100));
      encoded.resize(encoded.size() + num_rest, 0xFF);
      ExactBuffer<uint8_t> followed(encoded);
      CheckSteps<T>(draws, followed.span(), values, num_rest);
    }
  }
}

TEST_CASE_TEMPLATE("every bit width", T, uint32_t, uint64_t) {
  Draws draws(23);
  for (int width = 0; width <= static_cast<int>(8 * sizeof(T)); ++width) {
    CAPTURE(width);
    DeltaEncoder<T> encoder;
    encoder.least_width = width;
    std::vector<T> values(300);
    T last = static_cast<T>(draws.Bits());
    for (T& value : values) {
      const auto bits = static_cast<T>(draws.Bits());
      value = last;
      last += width == 0 ? T{3} : static_cast<T>(bits >> (8 * sizeof(T) - width));
    }
    ExactBuffer<uint8_t> bytes(encoder.Encode(values));
    CHECK(ReadAll<T>(bytes.span()) == values);
    CheckSteps<T>(draws, bytes.span(), values, 0);
  }
}

TEST_CASE_TEMPLATE("the last miniblock may end with its last value", T, uint32_t,
                   uint64_t) {
  Draws draws(24);
  for (size_t size = 2; size < 140; ++size) {
    for (const std::vector<T>& values : Shapes<T>(draws, size)) {
      DeltaEncoder<T> encoder;
      encoder.padded = false;
      encoder.unused_width = 0xFF;
      ExactBuffer<uint8_t> bytes(encoder.Encode(values));
      CHECK(ReadAll<T>(bytes.span()) == values);
      CheckSteps<T>(draws, bytes.span(), values, 0);
    }
  }
}

TEST_CASE_TEMPLATE("input cut at any byte is an error, values before it are right", T,
                   uint32_t, uint64_t) {
  Draws draws(25);
  for (const std::vector<T>& values : Shapes<T>(draws, 300)) {
    DeltaEncoder<T> encoder;
    encoder.padded = false;
    const std::vector<uint8_t> whole = encoder.Encode(values);
    for (size_t size = 0; size < whole.size(); ++size) {
      ExactBuffer<uint8_t> cut(std::span<const uint8_t>(whole).first(size));
      CHECK(Throws(ErrorKind::kCorruptFile, [&] { ReadAll<T>(cut.span()); }));
      size_t position = 0;
      CHECK(Throws(ErrorKind::kCorruptFile, [&] {
        DeltaBinaryPackedReader<T> reader(cut.span());
        for (; position < values.size(); ++position) {
          T value;
          reader.Read(&value, 1);
          REQUIRE(value == values[position]);
        }
      }));
      CHECK(Throws(ErrorKind::kCorruptFile, [&] {
        DeltaBinaryPackedReader<T>(cut.span()).Skip(static_cast<int64_t>(values.size()));
      }));
    }
  }
}

TEST_CASE_TEMPLATE("damaged input gives values or the one kind of error", T, uint32_t,
                   uint64_t) {
  Draws draws(26);
  for (int trial = 0; trial < 4000; ++trial) {
    const std::vector<std::vector<T>> shapes =
        Shapes<T>(draws, static_cast<size_t>(draws.Below(200)));
    DeltaEncoder<T> encoder;
    std::vector<uint8_t> damaged = encoder.Encode(
        shapes[static_cast<size_t>(draws.Below(static_cast<int64_t>(shapes.size())))]);
    const bool header = draws.OneIn(2);
    for (int64_t i = draws.Between(1, 3); i > 0; --i) {
      const auto size = static_cast<int64_t>(damaged.size());
      damaged[static_cast<size_t>(
          draws.Below(header ? std::min<int64_t>(size, 12) : size))] =
          static_cast<uint8_t>(draws.Bits());
    }
    ExactBuffer<uint8_t> bytes(damaged);
    const auto error = testing::Caught([&] {
      DeltaBinaryPackedReader<T> reader(bytes.span());
      int64_t left = std::min<int64_t>(reader.num_values(), 2000);
      while (left > 0) {
        const int64_t count = draws.Between(1, std::min<int64_t>(left, 100));
        ExactBuffer<T> out(static_cast<size_t>(count));
        reader.Read(out.data(), count);
        left -= count;
      }
    });
    if (error) CHECK(error->kind() == ErrorKind::kCorruptFile);
  }
}

// A header of the four figures, each of which may be of any size.
std::vector<uint8_t> Header(const std::vector<uint64_t>& figures) {
  std::vector<uint8_t> bytes;
  for (uint64_t figure : figures) {
    for (; figure >= 0x80; figure >>= 7) {
      bytes.push_back(static_cast<uint8_t>(figure | 0x80));
    }
    bytes.push_back(static_cast<uint8_t>(figure));
  }
  return bytes;
}

TEST_CASE("headers that cannot be") {
  const std::vector<std::vector<uint64_t>> headers = {
      {0, 4, 1, 0},                    // no block size
      {64, 1, 1, 0},                   // not a multiple of 128
      {uint64_t{1} << 31, 1, 1, 0},    // block size beyond all reason
      {~uint64_t{0} << 7, 1, 1, 0},    //
      {128, 0, 1, 0},                  // no miniblocks
      {128, 3, 1, 0},                  // not a whole number of values
      {128, 8, 1, 0},                  // 16 values
      {128, 256, 1, 0},                // less than one value
      {128, ~uint64_t{0}, 1, 0},       //
      {128, 4, uint64_t{1} << 31, 0},  // more values than a page can have
      {128, 4, ~uint64_t{0}, 0},       //
      {128, 4, 2, 0},                  // more values than bytes
      {128, 4, 1, uint64_t{1} << 33},  // first value beyond 32 bits, signed or not
  };
  for (const std::vector<uint64_t>& figures : headers) {
    ExactBuffer<uint8_t> bytes(Header(figures));
    CHECK(Throws(ErrorKind::kCorruptFile,
                 [&] { DeltaBinaryPackedReader<uint32_t>(bytes.span()); }));
  }
  ExactBuffer<uint8_t> endless(std::vector<uint8_t>(20, 0x80));
  CHECK(Throws(ErrorKind::kCorruptFile,
               [&] { DeltaBinaryPackedReader<uint64_t>(endless.span()); }));
}

TEST_CASE("a first value of 32 bits may be sign-extended or not") {
  for (const uint64_t figure : {(uint64_t{1} << 32), (uint64_t{1} << 32) - 1}) {
    ExactBuffer<uint8_t> bytes(Header({128, 4, 1, figure}));  // 2^31 and -2^31
    CHECK(ReadAll<uint32_t>(bytes.span()) == std::vector<uint32_t>{uint32_t{1} << 31});
  }
}

TEST_CASE("deltas of more bits than the type count modulo its width") {
  for (const int width : {33, 40, 63, 64}) {
    // 7, then steps of 3 and of 2^32 - 4, which are packed as they are.
    std::vector<uint8_t> encoded = Header({128, 4, 3, 14, 0});
    encoded.insert(encoded.end(), {static_cast<uint8_t>(width), 0, 0, 0});
    std::vector<uint8_t> packed(static_cast<size_t>(4 * width));
    const auto put = [&](int64_t bit, uint64_t value) {
      for (; value != 0; value >>= 1, ++bit) {
        packed[static_cast<size_t>(bit / 8)] |=
            static_cast<uint8_t>((value & 1) << (bit % 8));
      }
    };
    put(0, 3);
    put(width, (uint64_t{1} << 32) - 4);
    encoded.insert(encoded.end(), packed.begin(), packed.end());
    ExactBuffer<uint8_t> bytes(encoded);
    CHECK(ReadAll<uint32_t>(bytes.span()) == std::vector<uint32_t>{7, 10, 6});
  }
}

TEST_CASE("a bit width beyond 64 is an error where values need it") {
  for (const uint8_t width : std::vector<uint8_t>{65, 255}) {
    std::vector<uint8_t> encoded = Header({128, 4, 34, 0, 0});
    // Of 33 deltas the second miniblock holds one.
    encoded.insert(encoded.end(), {0, width, 255, 255});
    encoded.resize(encoded.size() + 1000);
    ExactBuffer<uint8_t> bytes(encoded);
    DeltaBinaryPackedReader<uint32_t> reader(bytes.span());
    ExactBuffer<uint32_t> out(33);
    reader.Read(out.data(), 33);
    CHECK(Throws(ErrorKind::kCorruptFile, [&] { reader.Skip(1); }));
  }
}

TEST_CASE("a minimum of more than 32 bits counts modulo 32 bits") {
  // 5, then a step of 3 that is written as 3 - 2^32.
  std::vector<uint8_t> encoded =
      Header({128, 4, 2, 10, 2 * ((uint64_t{1} << 32) - 3) - 1});
  encoded.resize(encoded.size() + 4);
  ExactBuffer<uint8_t> bytes(encoded);
  CHECK(ReadAll<uint32_t>(bytes.span()) == std::vector<uint32_t>{5, 8});
}

TEST_CASE("billions of equal steps are announced without being touched") {
  // One block holds them all.
  const uint64_t block = (uint64_t{1} << 31) - 128;
  std::vector<uint8_t> encoded = Header({block, 1, block, 0, 2});
  encoded.push_back(0);
  ExactBuffer<uint8_t> bytes(encoded);
  DeltaBinaryPackedReader<uint64_t> reader(bytes.span());
  CHECK(reader.num_values() == static_cast<int64_t>(block));
  ExactBuffer<uint64_t> out(3);
  reader.Read(out.data(), 3);
  CHECK(out.Copy() == std::vector<uint64_t>{0, 1, 2});
}

}  // namespace
}  // namespace torchparquet::kernels
