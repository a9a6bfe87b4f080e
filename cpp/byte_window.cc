#include "byte_window.h"

#include <algorithm>
#include <cstring>

namespace torchparquet {

void ByteWindow::Use(ScratchBuffer* memory) {
  memory_ = memory;
  held_ = {};
}

void ByteWindow::Read(const ByteRange& range, uint8_t* out) {
  if (costs_ == nullptr) return file_->ReadAt(range.offset, range.num_bytes, out);
  const CostTimer timer(&costs_->read_time);
  file_->ReadAt(range.offset, range.num_bytes, out);
  costs_->bytes_read += range.num_bytes;
  ++costs_->num_reads;
}

std::span<const uint8_t> ByteWindow::View(const ByteRange& wanted, int64_t ahead_end) {
  const bool begins_inside = wanted.offset >= held_.offset && wanted.offset < held_.end();
  if (!begins_inside || wanted.end() > held_.end()) {
    const int64_t num_bytes = std::max(wanted.end(), ahead_end) - wanted.offset;
    const auto needed_capacity = static_cast<size_t>(num_bytes + kPaddingBytes);
    int64_t kept_bytes = begins_inside ? held_.end() - wanted.offset : 0;
    // Growth drops the content, so the kept bytes are read again. Rare: a buffer grows
    // to the largest page that it has met.
    if (needed_capacity > memory_->capacity()) kept_bytes = 0;
    const int64_t shift = wanted.offset - held_.offset;
    held_ = {};  // until the read succeeds
    uint8_t* data = memory_->Reserve(needed_capacity);
    if (kept_bytes > 0) {
      std::memmove(data, data + shift, static_cast<size_t>(kept_bytes));
    }
    Read({wanted.offset + kept_bytes, num_bytes - kept_bytes}, data + kept_bytes);
    held_ = {wanted.offset, num_bytes};
  }
  return {memory_->data() + (wanted.offset - held_.offset),
          static_cast<size_t>(wanted.num_bytes)};
}

}  // namespace torchparquet
