#pragma once

#include <cstdint>
#include <memory>
#include <span>

#include "base/byte_range.h"
#include "base/scratch_buffer.h"
#include "base/task_costs.h"
#include "format/source.h"

namespace torchparquet {

// Views of a file's bytes, read on demand. Holds one stretch of the file at a time: where
// the file has it in memory, there, else in memory that the caller owns and may take
// away. Used by one thread.
class ReadAhead {
 public:
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
    return {data_ + (offset - held_.offset), static_cast<size_t>(held_.end() - offset)};
  }
  // Copies such bytes to `out`. Those that it does not hold go there from the file.
  void Copy(const ByteRange& wanted, uint8_t* out);

 private:
  template <typename Reads>
  void Count(const Reads& reads);
  void Read(const ByteRange& range, uint8_t* out);
  bool Borrow(const ByteRange& next);
  void Fill(ByteRange next);
  bool HasRoom(int64_t num_bytes) const;
  bool Holds(int64_t offset) const {
    return offset >= held_.offset && offset < held_.end();
  }

  const Source* file_;
  ScratchBuffer* memory_ = nullptr;
  TaskCosts* costs_ = nullptr;
  ByteRange held_;
  const uint8_t* data_ = nullptr;            // of held_
  std::shared_ptr<const uint8_t> borrowed_;  // keeps them; null if they are in memory_
};

}  // namespace torchparquet
