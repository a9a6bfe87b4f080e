#include "pages/read_ahead.h"

#include <algorithm>
#include <cstring>

namespace torchparquet {

void ReadAhead::Use(ScratchBuffer* memory) {
  memory_ = memory;
  held_ = {};
}

void ReadAhead::Read(const ByteRange& range, uint8_t* out) {
  if (costs_ == nullptr) return file_->ReadAt(range.offset, range.num_bytes, out);
  const CostTimer timer(&costs_->read_time);
  file_->ReadAt(range.offset, range.num_bytes, out);
  costs_->bytes_read += range.num_bytes;
  ++costs_->num_reads;
}

void ReadAhead::Copy(const ByteRange& wanted, uint8_t* out) {
  int64_t num_held = 0;
  if (wanted.offset >= held_.offset && wanted.offset < held_.end()) {
    num_held = std::min(wanted.end(), held_.end()) - wanted.offset;
    std::memcpy(out, memory_->data() + (wanted.offset - held_.offset),
                static_cast<size_t>(num_held));
  }
  if (num_held == wanted.num_bytes) return;
  Read({wanted.offset + num_held, wanted.num_bytes - num_held}, out + num_held);
}

bool ReadAhead::HasRoom(int64_t num_bytes) const {
  return static_cast<size_t>(num_bytes + kPaddingBytes) <= memory_->capacity();
}

std::span<const uint8_t> ReadAhead::View(const ByteRange& wanted, int64_t ahead_end) {
  const bool begins_inside = wanted.offset >= held_.offset && wanted.offset < held_.end();
  if (!begins_inside || wanted.end() > held_.end()) {
    const int64_t end = std::max(wanted.end(), ahead_end);
    ByteRange next{wanted.offset, end - wanted.offset};
    const int64_t skipped_bytes = wanted.offset - held_.offset;
    int64_t kept_bytes = begins_inside ? held_.end() - wanted.offset : 0;
    // Moves the bytes to the front, unless that moves more than the space before them. A
    // page longer than the bytes read with its header is such a case.
    const bool stays =
        begins_inside && kept_bytes > skipped_bytes && HasRoom(end - held_.offset);
    if (stays) {
      next = {held_.offset, end - held_.offset};
      kept_bytes = held_.num_bytes;
    } else if (!HasRoom(next.num_bytes)) {
      // Growth drops the content, so kept bytes are read again. This is rare: a buffer
      // grows to the largest page that it meets.
      kept_bytes = 0;
    }
    held_ = {};  // until the read succeeds
    uint8_t* data = memory_->Reserve(static_cast<size_t>(next.num_bytes + kPaddingBytes));
    if (kept_bytes > 0 && !stays) {
      std::memmove(data, data + skipped_bytes, static_cast<size_t>(kept_bytes));
    }
    Read({next.offset + kept_bytes, next.num_bytes - kept_bytes}, data + kept_bytes);
    held_ = next;
  }
  return {memory_->data() + (wanted.offset - held_.offset),
          static_cast<size_t>(wanted.num_bytes)};
}

}  // namespace torchparquet
