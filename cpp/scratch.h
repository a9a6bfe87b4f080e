#pragma once

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <new>
#include <utility>

#include "page_codec.h"
#include "task_costs.h"

namespace torchparquet {

// A growing buffer. Its content does not survive growth, and its memory is never zeroed.
// Used by one thread at a time. Movable.
class ScratchBuffer {
 public:
  ScratchBuffer() = default;
  ScratchBuffer(ScratchBuffer&& other) noexcept
      : data_(std::move(other.data_)), capacity_(std::exchange(other.capacity_, 0)) {}
  ScratchBuffer& operator=(ScratchBuffer&& other) noexcept {
    data_ = std::move(other.data_);
    capacity_ = std::exchange(other.capacity_, 0);
    return *this;
  }

  // Returns room for `num_bytes`, aligned to 64 bytes.
  uint8_t* Reserve(size_t num_bytes) {
    if (num_bytes > capacity_) {
      data_.reset();
      capacity_ = 0;
      // Powers of two, so that it soon stops growing. Unused memory has no pages.
      const size_t capacity = std::bit_ceil(std::max(num_bytes, kMinBytes));
      data_.reset(static_cast<uint8_t*>(operator new(capacity, kAlignment)));
      capacity_ = capacity;
    }
    return data_.get();
  }

  template <typename T>
  T* ReserveItems(int64_t num_items) {
    // Raw storage of fundamental alignment, for trivial types only.
    return reinterpret_cast<T*>(Reserve(static_cast<size_t>(num_items) * sizeof(T)));
  }

  uint8_t* data() const { return data_.get(); }
  size_t capacity() const { return capacity_; }

 private:
  static constexpr std::align_val_t kAlignment{64};
  static constexpr size_t kMinBytes = 512;
  struct Free {
    void operator()(uint8_t* data) const { operator delete(data, kAlignment); }
  };

  std::unique_ptr<uint8_t, Free> data_;
  size_t capacity_ = 0;
};

// The buffers that one column reader keeps from task to task. The next reader reuses
// them.
struct ColumnBuffers {
  ScratchBuffer file_bytes;  // bytes of the file, if it is not compressed
  ScratchBuffer page;        // bytes of a decompressed data page
  ScratchBuffer dictionary;  // values of the column chunk's dictionary
  ScratchBuffer indices;     // indices, or bytes, of a dictionary of longer values
  ScratchBuffer codes;       // a dictionary's strings as numbers of a vocabulary
  ScratchBuffer levels;      // levels in the deprecated encoding, repacked

  int64_t num_bytes() const {
    return static_cast<int64_t>(file_bytes.capacity() + page.capacity() +
                                dictionary.capacity() + indices.capacity() +
                                codes.capacity() + levels.capacity());
  }
};

// The buffers that one decode thread reuses from task to task. Their content does not
// outlive a task.
struct DecodeScratch {
  ScratchBuffer file_bytes;  // compressed bytes of the file
  ScratchBuffer page;        // bytes of a decompressed dictionary page
  PageCodec codec;
  ScratchBuffer validity;  // one byte per row of a block
  ScratchBuffer dense;     // stored values of a block with nulls
  ScratchBuffer block;     // values that will be written with a stride
  // For shuffle windows: row numbers, cells of a strip, their mask, and the buffers of
  // column readers that have ended.
  ScratchBuffer rows;
  ScratchBuffer strip;
  ScratchBuffer strip_valid;
  ColumnBuffers column;
  TaskCosts costs;  // of the current task
};

}  // namespace torchparquet
