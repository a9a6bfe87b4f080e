#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <mutex>
#include <utility>

#include "base/page_buffer.h"

namespace torchparquet {

// Buffers that were used, for the next ones of about their size: fresh memory costs a
// page fault for each 4 KiB. Thread-safe.
class BufferPool {
 public:
  // Keeps at most `max_bytes`, those in use included.
  explicit BufferPool(int64_t max_bytes) : max_bytes_(max_bytes) {}
  BufferPool(const BufferPool&) = delete;
  BufferPool& operator=(const BufferPool&) = delete;

  int64_t max_bytes() const { return max_bytes_; }
  int64_t idle_bytes() const {
    const std::lock_guard lock(mutex_);
    return idle_bytes_;
  }

  // A buffer of at least that size, with any content.
  PageBuffer Take(int64_t num_bytes) {
    {
      const std::lock_guard lock(mutex_);
      const auto found = idle_.lower_bound(num_bytes);
      if (found != idle_.end() && found->first / 2 <= num_bytes) {
        PageBuffer buffer = std::move(found->second);
        idle_bytes_ -= found->first;
        used_bytes_ += found->first;
        idle_.erase(found);
        return buffer;
      }
    }
    PageBuffer buffer(static_cast<size_t>(RoundedUp(num_bytes)));
    const std::lock_guard lock(mutex_);
    used_bytes_ += SizeOf(buffer);
    Shrink();
    return buffer;
  }

  // Lets go of idle buffers beyond so many bytes.
  void ShrinkIdle(int64_t num_bytes) {
    const std::lock_guard lock(mutex_);
    while (idle_bytes_ > num_bytes) {
      const auto smallest = idle_.begin();
      idle_bytes_ -= smallest->first;
      idle_.erase(smallest);
    }
  }

  // Takes back a buffer that came from Take. Frees it if there is no memory to keep it.
  void Return(PageBuffer buffer) noexcept {
    const std::lock_guard lock(mutex_);
    const int64_t num_bytes = SizeOf(buffer);
    used_bytes_ -= num_bytes;
    try {
      idle_.emplace(num_bytes, std::move(buffer));
    } catch (...) {
      return;
    }
    idle_bytes_ += num_bytes;
    Shrink();
  }

 private:
  // Few sizes fit many requests.
  static int64_t RoundedUp(int64_t num_bytes) {
    constexpr int64_t kStep = int64_t{256} << 10;
    return num_bytes < kStep ? num_bytes : (num_bytes + kStep - 1) / kStep * kStep;
  }
  static int64_t SizeOf(const PageBuffer& buffer) {
    return static_cast<int64_t>(buffer.capacity());
  }

  void Shrink() {
    while (!idle_.empty() && idle_bytes_ + used_bytes_ > max_bytes_) {
      const auto smallest = idle_.begin();
      idle_bytes_ -= smallest->first;
      idle_.erase(smallest);
    }
  }

  const int64_t max_bytes_;
  mutable std::mutex mutex_;
  std::multimap<int64_t, PageBuffer> idle_;  // by capacity
  int64_t idle_bytes_ = 0;
  int64_t used_bytes_ = 0;
};

}  // namespace torchparquet
