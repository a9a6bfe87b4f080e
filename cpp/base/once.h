#pragma once

#include <atomic>
#include <mutex>

namespace torchparquet {

// Does something once for all threads; if that throws, the next caller tries again.
//
// Not std::call_once: an exception that passes the C library's pthread_once makes it load
// the unwinder, and glibc ends the process if it has no memory for that.
class Once {
 public:
  // Returns when `work` is done, by this thread or by another one.
  template <typename Work>
  void Do(const Work& work) {
    // Acquire: what the other thread wrote is visible.
    if (is_done_.load(std::memory_order_acquire)) return;
    const std::lock_guard lock(mutex_);
    if (is_done_.load(std::memory_order_relaxed)) return;
    work();
    is_done_.store(true, std::memory_order_release);
  }

 private:
  std::mutex mutex_;
  std::atomic<bool> is_done_{false};
};

}  // namespace torchparquet
