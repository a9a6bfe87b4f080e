#include "pages/read_ahead.h"

#include <algorithm>
#include <cstring>
#include <utility>

namespace torchparquet {

void ReadAhead::Use(ScratchBuffer* memory) {
  memory_ = memory;
  held_ = {};
  borrowed_ = nullptr;
}

void ReadAhead::Read(const ByteRange& range, uint8_t* out) {
  Count([&] {
    file_->ReadAt(range.offset, range.num_bytes, out);
    return range.num_bytes;
  });
}

// Counts `reads`, which returns how many bytes it has read, and its time.
template <typename Reads>
void ReadAhead::Count(const Reads& reads) {
  if (costs_ == nullptr) return void(reads());
  const CostTimer timer(&costs_->read_time);
  const int64_t num_bytes = reads();
  costs_->bytes_read += num_bytes;
  if (num_bytes > 0) ++costs_->num_reads;
}

void ReadAhead::Copy(const ByteRange& wanted, uint8_t* out) {
  int64_t num_held = 0;
  if (Holds(wanted.offset)) {
    num_held = std::min(wanted.end(), held_.end()) - wanted.offset;
    std::memcpy(out, data_ + (wanted.offset - held_.offset),
                static_cast<size_t>(num_held));
  }
  if (num_held == wanted.num_bytes) return;
  Read({wanted.offset + num_held, wanted.num_bytes - num_held}, out + num_held);
}

bool ReadAhead::HasRoom(int64_t num_bytes) const {
  return static_cast<size_t>(num_bytes + kPaddingBytes) <= memory_->capacity();
}

std::span<const uint8_t> ReadAhead::View(const ByteRange& wanted, int64_t ahead_end) {
  if (!Holds(wanted.offset) || wanted.end() > held_.end()) {
    const int64_t end = std::max(wanted.end(), ahead_end);
    const ByteRange next{wanted.offset, end - wanted.offset};
    if (!Borrow(next)) Fill(next);
  }
  return {data_ + (wanted.offset - held_.offset), static_cast<size_t>(wanted.num_bytes)};
}

// Holds the bytes where the file has them, if it does.
bool ReadAhead::Borrow(const ByteRange& next) {
  std::shared_ptr<const uint8_t> bytes;
  Count([&]() -> int64_t {
    bytes = file_->Borrow(next);
    if (bytes == nullptr) return 0;
    return next.end() - (Holds(next.offset) ? held_.end() : next.offset);
  });
  if (bytes == nullptr) return false;
  borrowed_ = std::move(bytes);
  data_ = borrowed_.get();
  held_ = next;
  return true;
}

// Holds the bytes in the memory, and those before them if that moves less.
void ReadAhead::Fill(ByteRange next) {
  const bool begins_inside = borrowed_ == nullptr && Holds(next.offset);
  const int64_t skipped_bytes = next.offset - held_.offset;
  int64_t kept_bytes = begins_inside ? held_.end() - next.offset : 0;
  // Moves the bytes to the front, unless that moves more than the space before them. A
  // page longer than the bytes read with its header is such a case.
  const bool stays =
      begins_inside && kept_bytes > skipped_bytes && HasRoom(next.end() - held_.offset);
  if (stays) {
    next = {held_.offset, next.end() - held_.offset};
    kept_bytes = held_.num_bytes;
  } else if (!HasRoom(next.num_bytes)) {
    // Growth drops the content, so kept bytes are read again. This is rare: a buffer
    // grows to the largest page that it meets.
    kept_bytes = 0;
  }
  held_ = {};  // until the read succeeds
  borrowed_ = nullptr;
  uint8_t* data = memory_->Reserve(static_cast<size_t>(next.num_bytes + kPaddingBytes));
  if (kept_bytes > 0 && !stays) {
    std::memmove(data, data + skipped_bytes, static_cast<size_t>(kept_bytes));
  }
  Read({next.offset + kept_bytes, next.num_bytes - kept_bytes}, data + kept_bytes);
  held_ = next;
  data_ = data;
}

}  // namespace torchparquet
