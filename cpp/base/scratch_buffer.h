#pragma once

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <new>
#include <utility>

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
    // Powers of two, so that it soon stops growing. Unused memory has no pages.
    if (num_bytes > capacity_) Renew(std::bit_ceil(std::max(num_bytes, kMinBytes)));
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

  void Renew(size_t capacity) {
    data_.reset();
    capacity_ = 0;
    data_.reset(static_cast<uint8_t*>(operator new(capacity, kAlignment)));
    capacity_ = capacity;
  }

  std::unique_ptr<uint8_t, Free> data_;
  size_t capacity_ = 0;
};

}  // namespace torchparquet
