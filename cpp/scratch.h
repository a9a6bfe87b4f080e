#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <new>

#include "page_codec.h"

namespace torchparquet {

// A growing buffer whose content does not survive growth and whose memory is never
// zeroed. One thread's.
class ScratchBuffer {
 public:
  // Returns room for `num_bytes`, aligned to 64 bytes.
  uint8_t* Reserve(size_t num_bytes) {
    if (num_bytes > capacity_) {
      data_.reset();
      capacity_ = 0;
      data_.reset(static_cast<uint8_t*>(operator new(num_bytes, kAlignment)));
      capacity_ = num_bytes;
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
  struct Free {
    void operator()(uint8_t* data) const { operator delete(data, kAlignment); }
  };

  std::unique_ptr<uint8_t, Free> data_;
  size_t capacity_ = 0;
};

// The buffers that one decode thread reuses from task to task.
struct DecodeScratch {
  ScratchBuffer window;  // bytes read from the file
  ScratchBuffer page;    // bytes of a decompressed page
  PageCodec codec;
  ScratchBuffer dictionary;  // values of the column chunk's dictionary
  ScratchBuffer levels;      // definition levels that had to be packed anew
  ScratchBuffer validity;    // one byte per row of a block
  ScratchBuffer dense;       // stored values of a block with nulls
  ScratchBuffer block;       // values on their way to a strided place
  ScratchBuffer stored;      // values as the fallback decoder delivers them
};

}  // namespace torchparquet
