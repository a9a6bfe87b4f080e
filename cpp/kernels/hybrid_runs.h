#pragma once

#include <cstdint>
#include <span>

namespace torchparquet::kernels {

// One run of Parquet's hybrid of run-length and bit-packed encoding.
struct HybridRun {
  bool packed = false;
  int64_t num_values = 0;
  uint32_t value = 0;  // of a repeated run
  std::span<const uint8_t>
      bytes;  // of a packed run: whole groups, or cut short at the end
  // One past the last byte that may be read beyond a packed run: the end of all runs.
  const uint8_t* readable_end = nullptr;
};

// Walks the runs of hybrid-encoded levels, dictionary indices or booleans.
// Source: parquet-format, Encodings.md, "Run Length Encoding / Bit-Packing Hybrid".
class HybridRunReader {
 public:
  HybridRunReader() = default;
  // `bytes` starts at the first run header and must outlive the reader.
  // Throws Error(kCorruptFile) unless 0 <= bit_width <= 32.
  HybridRunReader(std::span<const uint8_t> bytes, int bit_width);

  // Reads the next run, which may be empty. Returns false at the end of the bytes;
  // throws Error(kCorruptFile) where a header or a value is cut short.
  bool Next(HybridRun* run);

  int bit_width() const { return bit_width_; }

 private:
  uint32_t ReadHeader();
  uint32_t ReadValue();

  std::span<const uint8_t> bytes_;
  int bit_width_ = 0;
};

}  // namespace torchparquet::kernels
