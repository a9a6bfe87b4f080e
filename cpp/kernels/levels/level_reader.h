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

  void Read(int64_t num_levels, uint8_t* levels);
  void Skip(int64_t num_levels);

 private:
  bool NextRun();
  int64_t TakeFromRun(int64_t num_levels);
  void UnpackLevels(int64_t num_levels, uint8_t* levels) const;
  void CheckLevel(uint32_t level) const;

  RleBitPackedReader runs_;
  uint32_t max_level_ = 0;
  RleBitPackedRun run_;
  int64_t run_position_ = 0;
};

}  // namespace torchparquet::kernels
