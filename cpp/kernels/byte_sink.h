#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <limits>
#include <memory>
#include <span>

namespace torchparquet::kernels {

// Bytes that grow at their end. Their memory is never zeroed, and growing takes amortised
// constant time per byte. Used by one thread at a time. Movable.
class ByteSink {
 public:
  // Bytes after the room that Extend returns. The caller may overwrite them too.
  static constexpr size_t kSlackBytes = 32;

  ByteSink() = default;
  ByteSink(ByteSink&& other) noexcept;
  ByteSink& operator=(ByteSink&& other) noexcept;

  // Appends `num_bytes` bytes, which the caller writes, and returns the first of them.
  // Throws Error(kValuesTooLarge), and changes nothing, if the sink would hold more than
  // max_bytes(), and std::bad_alloc if there is no memory. Bytes that the sink held may
  // move.
  uint8_t* Extend(size_t num_bytes);

  // Drops all but the first `num_bytes` bytes. Keeps the memory.
  void Truncate(size_t num_bytes) { size_ = std::min(size_, num_bytes); }
  void Clear() { size_ = 0; }

  void set_max_bytes(size_t max_bytes) { max_bytes_ = max_bytes; }
  size_t max_bytes() const { return max_bytes_; }

  std::span<const uint8_t> bytes() const { return {data_.get(), size_}; }
  size_t size() const { return size_; }
  // Bytes of memory, including slack.
  size_t capacity() const { return capacity_; }

 private:
  struct Free {
    void operator()(uint8_t* data) const { std::free(data); }
  };

  void Grow(size_t num_bytes);

  std::unique_ptr<uint8_t, Free> data_;
  size_t size_ = 0;
  size_t capacity_ = 0;
  size_t max_bytes_ = std::numeric_limits<size_t>::max();
};

}  // namespace torchparquet::kernels
