#pragma once

#include <sys/mman.h>

#include <cstddef>
#include <cstdint>
#include <new>
#include <utility>

namespace torchparquet {

// Memory with any content, of a size that stays. Large ones are pages of the system,
// which get them back at the end: glibc keeps what was freed in 8 MiB pieces, 0.7 GB
// after a few data sets. Aligned to 64 bytes. Movable.
class PageBuffer {
 public:
  PageBuffer() = default;
  // Throws std::bad_alloc.
  explicit PageBuffer(size_t num_bytes) : capacity_(num_bytes) {
    if (num_bytes < kMinMappedBytes) {
      data_ = static_cast<uint8_t*>(operator new(num_bytes, kAlignment));
      return;
    }
    // Huge pages begin at multiples of their size: the rest of the mapping has no pages.
    mapped_bytes_ = num_bytes + kHugePageBytes;
    mapping_ = mmap(nullptr, mapped_bytes_, PROT_READ | PROT_WRITE,
                    MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (mapping_ == MAP_FAILED) throw std::bad_alloc();
    const auto begin = reinterpret_cast<uintptr_t>(mapping_);  // page arithmetic
    const size_t skipped = (kHugePageBytes - begin % kHugePageBytes) % kHugePageBytes;
    data_ = static_cast<uint8_t*>(mapping_) + skipped;
#if defined(MADV_HUGEPAGE)
    madvise(data_, num_bytes, MADV_HUGEPAGE);  // advice only: may fail
#endif
  }
  PageBuffer(PageBuffer&& other) noexcept { Swap(&other); }
  PageBuffer& operator=(PageBuffer&& other) noexcept {
    PageBuffer(std::move(other)).Swap(this);
    return *this;
  }
  ~PageBuffer() {
    if (mapping_ != nullptr) {
      munmap(mapping_, mapped_bytes_);
    } else {
      operator delete(data_, kAlignment);
    }
  }

  uint8_t* data() const { return data_; }
  size_t capacity() const { return capacity_; }

 private:
  static constexpr std::align_val_t kAlignment{64};
  static constexpr size_t kMinMappedBytes = size_t{1} << 20;
  static constexpr size_t kHugePageBytes = size_t{2} << 20;

  void Swap(PageBuffer* other) noexcept {
    std::swap(data_, other->data_);
    std::swap(capacity_, other->capacity_);
    std::swap(mapping_, other->mapping_);
    std::swap(mapped_bytes_, other->mapped_bytes_);
  }

  uint8_t* data_ = nullptr;
  size_t capacity_ = 0;
  void* mapping_ = nullptr;  // null if the memory is of the heap
  size_t mapped_bytes_ = 0;
};

}  // namespace torchparquet
