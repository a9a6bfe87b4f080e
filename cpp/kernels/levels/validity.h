#pragma once

#include <cstdint>
#include <span>

#include "kernels/levels/rle_bit_packed.h"

namespace torchparquet::kernels {

// Reads the definition levels of one page of a column without repetition as validity: a
// row has a stored value if its level is `max_level`. Runs stay runs, so levels cost
// nothing in a column without nulls. Read and Skip throw Error(kCorruptFile) for a level
// above `max_level` or at the end of the levels.
class ValidityReader {
 public:
  // `runs` holds the levels in the RLE/bit-packing hybrid and must outlive the reader.
  ValidityReader(std::span<const uint8_t> runs, int max_level);

  // The number of next rows that a single repeated run says are valid. 0 if the next row
  // is null, is in a packed run, or does not exist.
  int64_t ValidRunRows();

  // Writes one byte per row: 1 if it is valid, else 0. Returns the number of ones.
  int64_t Read(int64_t num_rows, uint8_t* validity);
  // Returns the number of valid rows among those skipped.
  int64_t Skip(int64_t num_rows);

 private:
  bool NextRun();
  int64_t ReadPacked(int64_t num_rows, uint8_t* validity);
  void UnpackWideLevels(int64_t num_rows, uint8_t* validity) const;

  RleBitPackedReader runs_;
  uint32_t max_level_;
  RleBitPackedRun run_;
  int64_t run_position_ = 0;
};

// Writes the bits [begin, begin + num_values) of `bits`, LSB first, as bytes 0 and 1.
// Reads only the bytes that hold those bits.
void UnpackBits(const uint8_t* bits, int64_t begin, int64_t num_values, uint8_t* out);

}  // namespace torchparquet::kernels
