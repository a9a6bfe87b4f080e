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

// A growing buffer whose content does not survive growth and whose memory is never
// zeroed. One thread's at a time. Movable.
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
      // In powers of two, so that it soon grows no more. What is not used has no pages.
      const size_t capacity = std::bit_ceil(std::max(num_bytes, kMinBytes));
      data_.reset(static_cast<uint8_t*>(operator new(capacity, kAlignment)));
      capacity_ = capacity;
    }
    return data_.get();
  }

  template <typename T>
  T* ReserveItems(int64_t num_items) {
    // The buffer is raw storage of fundamental alignment, for trivial types only.
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

// What one column reader keeps from task to task; reused from reader to reader.
struct ColumnBuffers {
  ScratchBuffer file_bytes;  // bytes as they stand in the file, where not compressed
  ScratchBuffer page;        // bytes of a decompressed data page
  ScratchBuffer dictionary;  // values of the column chunk's dictionary
  ScratchBuffer indices;  // the indices, or the bytes, of a dictionary of longer values
  ScratchBuffer codes;    // what a dictionary's strings are in a vocabulary
  ScratchBuffer levels;   // definition levels that had to be packed anew

  int64_t num_bytes() const {
    return static_cast<int64_t>(file_bytes.capacity() + page.capacity() +
                                dictionary.capacity() + indices.capacity() +
                                codes.capacity() + levels.capacity());
  }
};

// The buffers that one decode thread reuses from task to task. Nothing in them outlives
// the task.
struct DecodeScratch {
  ScratchBuffer file_bytes;  // compressed bytes as they stand in the file
  ScratchBuffer page;        // bytes of a decompressed dictionary page
  PageCodec codec;
  ScratchBuffer validity;  // one byte per row of a block
  ScratchBuffer dense;     // stored values of a block with nulls
  ScratchBuffer block;     // values on their way to a strided place
  // Of shuffle windows: numbers of rows, cells on their way to the batches, their mask,
  // and what column readers left.
  ScratchBuffer rows;
  ScratchBuffer strip;
  ScratchBuffer strip_valid;
  ColumnBuffers column;
  TaskCosts costs;  // of the task in work
};

}  // namespace torchparquet
