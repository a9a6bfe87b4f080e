#pragma once

// Makes allocations fail. Include it in the one source of a test's program.

#include <atomic>
#include <cstdint>
#include <cstdlib>
#include <limits>
#include <new>

namespace torchparquet::testing {

// Allocations by `new` that are left to each thread but the one that set it.
inline constexpr int64_t kPlenty = std::numeric_limits<int64_t>::max();
inline std::atomic<int64_t> allocations_left{kPlenty};
// Of those that come when none is left, so many fail.
inline std::atomic<int64_t> failures_left{kPlenty};
inline thread_local bool is_spared = false;

inline void* AllocateIfLeft(std::size_t num_bytes, std::size_t alignment) {
  if (!is_spared && allocations_left.load() != kPlenty &&
      allocations_left.fetch_sub(1) <= 0 && failures_left.fetch_sub(1) > 0) {
    throw std::bad_alloc();
  }
  const std::size_t rounded = (num_bytes + alignment) / alignment * alignment;
  void* data = std::aligned_alloc(alignment, rounded);
  if (data == nullptr) throw std::bad_alloc();
  return data;
}

}  // namespace torchparquet::testing

void* operator new(std::size_t num_bytes) {
  return torchparquet::testing::AllocateIfLeft(num_bytes,
                                               __STDCPP_DEFAULT_NEW_ALIGNMENT__);
}
void* operator new(std::size_t num_bytes, std::align_val_t alignment) {
  return torchparquet::testing::AllocateIfLeft(num_bytes,
                                               static_cast<std::size_t>(alignment));
}
void operator delete(void* data) noexcept { std::free(data); }
void operator delete(void* data, std::size_t) noexcept { std::free(data); }
void operator delete(void* data, std::align_val_t) noexcept { std::free(data); }
void operator delete(void* data, std::size_t, std::align_val_t) noexcept {
  std::free(data);
}
