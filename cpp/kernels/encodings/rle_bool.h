#pragma once

#include <cstdint>
#include <span>

#include "kernels/levels/rle_bit_packed.h"

namespace torchparquet::kernels {

// Decodes the RLE-encoded BOOLEAN values of one page. Their runs follow their own length
// of four bytes, unlike dictionary indices and the levels of V2 pages.
class RleBoolReader {
 public:
  // `bytes` starts at the length and must outlive the reader. Throws Error(kCorruptFile)
  // if the length goes beyond `bytes`.
  explicit RleBoolReader(std::span<const uint8_t> bytes);

  // Writes one byte per value, 0 or 1. Both throw Error(kCorruptFile) if the runs hold
  // fewer values.
  void Read(uint8_t* out, int64_t num_values);
  void Skip(int64_t num_values);

 private:
  template <typename Use>
  void Take(int64_t num_values, Use use);

  RunCursor runs_;
};

}  // namespace torchparquet::kernels
