#pragma once

#include <algorithm>
#include <cstdint>
#include <span>

#include "base/errors.h"
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

// Reads the runs of levels, dictionary indices or booleans.
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

// Consecutive values of one run.
struct RunPart {
  const RleBitPackedRun& run;
  int64_t begin;  // within the run
  int64_t count;
};

// Walks the values in steps of any size, across the borders of runs.
class RunCursor {
 public:
  RunCursor() = default;  // of no value
  // As of RleBitPackedReader.
  RunCursor(std::span<const uint8_t> bytes, int bit_width) : runs_(bytes, bit_width) {}

  // The run of the next value, or null at the end.
  const RleBitPackedRun* Run() {
    while (position_ == run_.num_values) {
      if (!runs_.Next(&run_)) return nullptr;
      position_ = 0;
    }
    return &run_;
  }
  // The number of values that the current run still has.
  int64_t left() const { return run_.num_values - position_; }
  int bit_width() const { return runs_.bit_width(); }

  // Calls use(RunPart) for each run that has some of the next `num_values` values, in
  // order, and moves past them. Throws Error(kCorruptFile) with the text `too_few` if
  // there are fewer.
  template <typename Use>
  void Take(int64_t num_values, const char* too_few, Use use) {
    while (num_values > 0) {
      if (Run() == nullptr) throw CorruptFile(too_few);
      const RunPart part{run_, position_, std::min(num_values, left())};
      position_ += part.count;
      num_values -= part.count;
      use(part);
    }
  }

 private:
  RleBitPackedReader runs_;
  RleBitPackedRun run_;
  int64_t position_ = 0;  // within the run
};

}  // namespace torchparquet::kernels
