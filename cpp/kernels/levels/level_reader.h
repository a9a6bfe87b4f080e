#pragma once

#include <cstdint>
#include <span>

#include "kernels/levels/rle_bit_packed.h"

namespace torchparquet::kernels {

// Reads the repetition or the definition levels of one page as bytes, or passes over
// them as runs. All throw Error(kCorruptFile) for a level above `max_level` or where the
// page has no more levels.
class LevelReader {
 public:
  LevelReader() = default;  // of no levels
  // `runs` is the hybrid encoding of the levels and must outlive the reader. Throws
  // Error(kNotSupported) unless 1 <= max_level <= 255.
  LevelReader(std::span<const uint8_t> runs, int max_level);

  // Number of entries from here on that one repeated run says have `level`; 0 where the
  // next entry has another, is in a packed run, or there is none.
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
