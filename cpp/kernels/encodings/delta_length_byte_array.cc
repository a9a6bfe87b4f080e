#include "kernels/encodings/delta_length_byte_array.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <limits>
#include <string>

#include "base/errors.h"

namespace torchparquet::kernels {
namespace {

// Checks all lengths and returns the bytes after them.
std::span<const uint8_t> FindValues(DeltaBinaryPackedReader<uint32_t> lengths,
                                    int64_t max_values) {
  if (lengths.num_values() > max_values) {
    throw CorruptFile(
        "page holds more lengths than values: " + std::to_string(lengths.num_values()) +
        " for " + std::to_string(max_values));
  }
  // The sum of at most INT32_MAX lengths below 2^32 cannot overflow.
  uint64_t num_bytes = 0;
  uint32_t signs = 0;
  std::array<uint32_t, kByteArrayBlock> block;
  for (int64_t left = lengths.num_values(); left > 0;) {
    const int64_t count = std::min(left, kByteArrayBlock);
    lengths.Read(block.data(), count);
    for (int64_t i = 0; i < count; ++i) {
      signs |= block[static_cast<size_t>(i)];
      num_bytes += block[static_cast<size_t>(i)];
    }
    left -= count;
  }
  if (signs > uint32_t{std::numeric_limits<int32_t>::max()}) {
    throw CorruptFile("length of a value is negative");
  }
  const std::span<const uint8_t> values = lengths.Rest();
  if (num_bytes > values.size()) {
    throw CorruptFile(
        "lengths of values go beyond their page: " + std::to_string(num_bytes) + " of " +
        std::to_string(values.size()) + " bytes");
  }
  return values;
}

}  // namespace

DeltaLengthByteArrayReader::DeltaLengthByteArrayReader(std::span<const uint8_t> bytes,
                                                       int64_t max_values)
    : lengths_(bytes), values_(FindValues(lengths_, max_values)) {}

const uint8_t* DeltaLengthByteArrayReader::Take(int64_t num_values, uint32_t* lengths) {
  lengths_.Read(lengths, num_values);
  size_t num_bytes = 0;
  for (int64_t i = 0; i < num_values; ++i) num_bytes += lengths[i];
  const uint8_t* first = values_.data();
  values_ = values_.subspan(num_bytes);
  return first;
}

void DeltaLengthByteArrayReader::Read(int64_t num_values, uint32_t* lengths,
                                      ByteSink* sink) {
  const uint8_t* first = Take(num_values, lengths);
  const auto num_bytes = static_cast<size_t>(values_.data() - first);
  uint8_t* out = sink->Extend(num_bytes);
  if (num_bytes > 0) std::memcpy(out, first, num_bytes);
}

void DeltaLengthByteArrayReader::Skip(int64_t num_values) {
  std::array<uint32_t, kByteArrayBlock> lengths;
  while (num_values > 0) {
    const int64_t count = std::min(num_values, kByteArrayBlock);
    Take(count, lengths.data());
    num_values -= count;
  }
}

}  // namespace torchparquet::kernels
