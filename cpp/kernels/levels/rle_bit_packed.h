#pragma once

#include <algorithm>
#include <cstdint>
#include <span>

#include "kernels/bit_unpack.h"

namespace torchparquet::kernels {

// One run of the RLE/bit-packing hybrid.
struct RleBitPackedRun {
  bool packed = false;
  int64_t num_values = 0;
  uint32_t value = 0;  // of a repeated run
  std::span<const uint8_t>
      bytes;  // of a packed run: whole groups, or cut short at the end
  // The end of all runs: a reader may load bytes up to here after a packed run.
  const uint8_t* readable_end = nullptr;
};

// Walks the runs of levels, dictionary indices or booleans.
class RleBitPackedReader {
 public:
  RleBitPackedReader() = default;
  // `bytes` starts at the first run header and must outlive the reader.
  // Throws Error(kCorruptFile) unless 0 <= bit_width <= 32.
  RleBitPackedReader(std::span<const uint8_t> bytes, int bit_width);

  // Reads the next run, which may be empty. Returns false at the end of the bytes. Throws
  // Error(kCorruptFile) if a header or a value is cut short.
  bool Next(RleBitPackedRun* run) {
    if (bytes_.empty()) return false;
    const uint32_t header = ReadHeader();
    run->packed = (header & 1) != 0;
    if (run->packed) {
      TakeGroups(header >> 1, run);
    } else {
      run->num_values = header >> 1;
      run->value = ReadValue();
    }
    return true;
  }

  int bit_width() const { return bit_width_; }

 private:
  // Runs are short if values change often, so the usual cases are inlined here.
  uint32_t ReadHeader() {
    if (bytes_.empty() || bytes_.front() >= 0x80) return ReadLongHeader();
    const uint32_t header = bytes_.front();
    bytes_ = bytes_.subspan(1);
    return header;
  }
  uint32_t ReadValue() {
    if (bit_width_ > 8 || bytes_.empty()) return ReadWideValue();
    if (bit_width_ == 0) return 0;
    const uint32_t value = bytes_.front();
    bytes_ = bytes_.subspan(1);
    return value;
  }
  uint32_t ReadLongHeader();
  uint32_t ReadWideValue();
  void TakeGroups(int64_t num_groups, RleBitPackedRun* run) {
    const int64_t num_bytes = num_groups * bit_width_;
    const auto available = static_cast<int64_t>(bytes_.size());
    run->num_values = num_groups * kGroupValues;
    // Some writers end the last run of a page at its last value, not at its last group.
    if (num_bytes > available) run->num_values = available * 8 / bit_width_;
    run->bytes = bytes_.first(static_cast<size_t>(std::min(num_bytes, available)));
    run->readable_end = bytes_.data() + bytes_.size();
    bytes_ = bytes_.subspan(run->bytes.size());
  }

  std::span<const uint8_t> bytes_;
  int bit_width_ = 0;
};

}  // namespace torchparquet::kernels
