#include "kernels/hybrid_runs.h"

#include <algorithm>
#include <string>

#include "errors.h"
#include "kernels/bit_unpack.h"

namespace torchparquet::kernels {

HybridRunReader::HybridRunReader(std::span<const uint8_t> bytes, int bit_width)
    : bytes_(bytes), bit_width_(bit_width) {
  if (bit_width < 0 || bit_width > 32) {
    throw CorruptFile("bit width must be 0 to 32: " + std::to_string(bit_width));
  }
}

uint32_t HybridRunReader::ReadHeader() {
  uint64_t header = 0;
  for (int shift = 0; shift < 35; shift += 7) {
    if (bytes_.empty()) throw CorruptFile("run header is cut short");
    const uint8_t byte = bytes_.front();
    bytes_ = bytes_.subspan(1);
    header |= static_cast<uint64_t>(byte & 0x7F) << shift;
    if ((byte & 0x80) == 0) {
      if (header > UINT32_MAX) break;
      return static_cast<uint32_t>(header);
    }
  }
  throw CorruptFile("run header is longer than 32 bits");
}

uint32_t HybridRunReader::ReadValue() {
  const size_t num_bytes = (static_cast<size_t>(bit_width_) + 7) / 8;
  if (bytes_.size() < num_bytes) throw CorruptFile("repeated run is cut short");
  uint32_t value = 0;
  for (size_t i = 0; i < num_bytes; ++i) value |= uint32_t{bytes_[i]} << (8 * i);
  bytes_ = bytes_.subspan(num_bytes);
  return value;
}

bool HybridRunReader::Next(HybridRun* run) {
  if (bytes_.empty()) return false;
  const uint32_t header = ReadHeader();
  run->packed = (header & 1) != 0;
  if (!run->packed) {
    run->num_values = header >> 1;
    run->value = ReadValue();
    return true;
  }
  const int64_t num_groups = header >> 1;
  const int64_t num_bytes = num_groups * bit_width_;
  run->num_values = num_groups * kGroupValues;
  const auto available = static_cast<int64_t>(bytes_.size());
  // Some writers end the last run of a page at its last value, not at its last group.
  if (num_bytes > available) run->num_values = available * 8 / bit_width_;
  run->bytes = bytes_.first(static_cast<size_t>(std::min(num_bytes, available)));
  run->readable_end = bytes_.data() + bytes_.size();
  bytes_ = bytes_.subspan(run->bytes.size());
  return true;
}

}  // namespace torchparquet::kernels
