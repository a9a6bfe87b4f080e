#pragma once

#include <cstdint>
#include <span>

#include "files/source.h"
#include "scratch.h"
#include "task_costs.h"

namespace torchparquet {

struct ByteRange {
  int64_t offset = 0;
  int64_t num_bytes = 0;

  int64_t end() const { return offset + num_bytes; }
};

// Views of a file's bytes, read as they are asked for. It holds one stretch of the file
// at a time, in memory that the caller owns and may take away. One thread's.
class ReadAhead {
 public:
  // Readable bytes behind every view, for kernels that load whole words.
  static constexpr int64_t kPaddingBytes = 64;

  explicit ReadAhead(const Source* file) : file_(file) {}

  // Forgets what is held and keeps further bytes in `memory`.
  void Use(ScratchBuffer* memory);
  // Counts what is read from now on; null for not at all.
  void CountIn(TaskCosts* costs) { costs_ = costs; }

  // Returns the bytes of `wanted`, which must lie within the file, valid until the next
  // call. When they have to be read, those behind them up to `ahead_end` are read with
  // them. Throws Error as Source::ReadAt does.
  std::span<const uint8_t> View(const ByteRange& wanted, int64_t ahead_end);

 private:
  void Read(const ByteRange& range, uint8_t* out);
  bool HasRoom(int64_t num_bytes) const;

  const Source* file_;
  ScratchBuffer* memory_ = nullptr;
  TaskCosts* costs_ = nullptr;
  ByteRange held_;
};

}  // namespace torchparquet
