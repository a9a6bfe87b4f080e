#include "kernels/encodings/byte_stream_split.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <vector>

#include "draws.h"
#include "encoders/arrow_encodings.h"
#include "exact_buffer.h"

namespace torchparquet::kernels {
namespace {

using testing::ArrowEncoding;
using testing::Draws;
using testing::ExactBuffer;

// Puts the bytes of values that stand end to end into streams.
std::vector<uint8_t> Split(const std::vector<uint8_t>& values, size_t width) {
  const size_t num_values = values.size() / width;
  std::vector<uint8_t> streams(values.size());
  for (size_t i = 0; i < values.size(); ++i) {
    streams[i % width * num_values + i / width] = values[i];
  }
  return streams;
}

constexpr int64_t kSizes[] = {0, 1, 2, 15, 16, 17, 31, 32, 33, 127, 128, 129, 1000};

TEST_CASE("every width and size, whole and in parts") {
  Draws draws(41);
  for (const int width : {1, 2, 3, 4, 5, 7, 8, 9, 12, 16, 33}) {
    for (const int64_t num_values : kSizes) {
      CAPTURE(width);
      CAPTURE(num_values);
      const auto values = testing::RandomBytes(draws, width * num_values);
      ExactBuffer<uint8_t> streams(Split(values, static_cast<size_t>(width)));
      ExactBuffer<uint8_t> out(values.size());
      DecodeByteStreamSplit({streams.data(), num_values, width}, num_values, out.data());
      CHECK(out.Copy() == values);

      int64_t position = 0;
      while (position < num_values) {
        const int64_t count =
            draws.Between(0, std::min<int64_t>(num_values - position, 70));
        ExactBuffer<uint8_t> part(static_cast<size_t>(width * count));
        DecodeByteStreamSplit({streams.data() + position, num_values, width}, count,
                              part.data());
        CHECK(std::equal(part.data(), part.data() + part.size(),
                         values.data() + width * position));
        position += count;
      }
    }
  }
}

TEST_CASE("no stream is read past the wanted values") {
  Draws draws(42);
  for (const int width : {2, 4, 8, 3}) {
    for (int64_t count = 0; count < 70; ++count) {
      // The last stream ends with its last value, whatever stands between the others.
      const int64_t stride = count + draws.Below(50);
      ExactBuffer<uint8_t> streams(
          testing::RandomBytes(draws, (width - 1) * stride + count));
      ExactBuffer<uint8_t> out(static_cast<size_t>(width * count));
      DecodeByteStreamSplit({streams.data(), stride, width}, count, out.data());
      for (int64_t i = 0; i < width * count; ++i) {
        CHECK(out.data()[i] == streams.data()[i % width * stride + i / width]);
      }
    }
  }
}

template <typename T>
void CheckArrow(Draws& draws) {
  for (const int64_t num_values : kSizes) {
    std::vector<T> values(static_cast<size_t>(num_values));
    for (T& value : values) value = static_cast<T>(draws.Bits());
    ExactBuffer<uint8_t> streams(
        testing::ArrowEncode<T>(ArrowEncoding::kByteStreamSplit, values));
    ExactBuffer<T> out(values.size());
    // The bytes of the values are what is compared.
    DecodeByteStreamSplit({streams.data(), num_values, sizeof(T)}, num_values,
                          reinterpret_cast<uint8_t*>(out.data()));
    CHECK(out.Copy() == values);
    CHECK(testing::ArrowDecode<T>(ArrowEncoding::kByteStreamSplit, streams.span(),
                                  num_values) == out.Copy());
  }
}

TEST_CASE("what Arrow encodes") {
  Draws draws(43);
  CheckArrow<uint32_t>(draws);
  CheckArrow<uint64_t>(draws);
  for (const int width : {1, 2, 3, 12, 16}) {
    for (const int64_t num_values : kSizes) {
      const auto values = testing::RandomBytes(draws, width * num_values);
      ExactBuffer<uint8_t> streams(
          testing::ArrowEncodeFixed(ArrowEncoding::kByteStreamSplit, width, values));
      ExactBuffer<uint8_t> out(values.size());
      DecodeByteStreamSplit({streams.data(), num_values, width}, num_values, out.data());
      CHECK(out.Copy() == values);
    }
  }
}

}  // namespace
}  // namespace torchparquet::kernels
