#pragma once

#include <cstdint>
#include <span>

#include "base/byte_range.h"
#include "base/scratch_buffer.h"
#include "base/task_costs.h"
#include "format/source.h"

namespace torchparquet {

// Views of a file's bytes, read on demand. Holds one stretch of the file at a time, in
// memory that the caller owns and may take away. Used by one thread.
class ReadAhead {
 public:
  // Readable bytes after every view, for kernels that load whole words.
  static constexpr int64_t kPaddingBytes = 64;

  explicit ReadAhead(const Source* file) : file_(file) {}

  // Forgets the bytes it holds and keeps further ones in `memory`.
  void Use(ScratchBuffer* memory);
  // Counts bytes read from now on in `costs`, if it is not null.
  void CountIn(TaskCosts* costs) { costs_ = costs; }

  // Returns the bytes of `wanted`, which must lie within the file, valid until the next
  // call that wants other bytes than these. If they have to be read, reads the bytes up
  // to `ahead_end` too. Throws Error as Source::ReadAt does.
  std::span<const uint8_t> View(const ByteRange& wanted, int64_t ahead_end);
  // All bytes that it holds from the offset on, where View has just found some.
  std::span<const uint8_t> HeldFrom(int64_t offset) const {
    return {memory_->data() + (offset - held_.offset),
            static_cast<size_t>(held_.end() - offset)};
  }
  // Copies such bytes to `out`. Those that it does not hold go there from the file.
  void Copy(const ByteRange& wanted, uint8_t* out);

 private:
  void Read(const ByteRange& range, uint8_t* out);
  bool HasRoom(int64_t num_bytes) const;

  const Source* file_;
  ScratchBuffer* memory_ = nullptr;
  TaskCosts* costs_ = nullptr;
  ByteRange held_;
};

}  // namespace torchparquet
