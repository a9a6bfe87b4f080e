#pragma once

#include <cstdint>
#include <span>

#include "kernels/levels/rle_bit_packed.h"

namespace torchparquet::kernels {

// Reads the repetition or definition levels of one page as bytes, or skips them as runs.
// All functions throw Error(kCorruptFile) for a level above `max_level` or if the page
// has no more levels.
class LevelReader {
 public:
  LevelReader() = default;  // of no levels
  // `runs` holds the levels in the RLE/bit-packing hybrid and must outlive the reader.
  // Throws Error(kNotSupported) unless 1 <= max_level <= 255.
  LevelReader(std::span<const uint8_t> runs, int max_level);

  // The number of next entries that one repeated run gives `level`. 0 if the next entry
  // has another level, is in a packed run, or does not exist.
  int64_t RunOf(int level);
  // The same for the highest level.
  int64_t ValidRun() { return RunOf(static_cast<int>(max_level_)); }

  void Read(int64_t num_levels, uint8_t* levels);
  // Writes 1 for the highest level, that of a value, and 0 for others. Returns the number
  // of ones.
  int64_t ReadValidity(int64_t num_levels, uint8_t* validity);
  // Returns how many of the levels are the highest.
  int64_t Skip(int64_t num_levels);

 private:
  template <typename Use>
  void Take(int64_t num_levels, Use use);
  void Unpack(const RunPart& part, uint8_t* levels) const;
  void CheckLevel(uint32_t level) const;

  RunCursor runs_;
  uint32_t max_level_ = 0;
};

}  // namespace torchparquet::kernels
