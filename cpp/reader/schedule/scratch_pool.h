#pragma once

#include <cstddef>
#include <memory>
#include <mutex>
#include <utility>
#include <vector>

#include "pages/decode_scratch.h"

namespace torchparquet {

// Memory that a reader keeps between tasks, apart from the scratch of its threads.
struct KeptScratch {
  std::vector<ColumnBuffers> columns = {};
  std::vector<ScratchBuffer> places = {};  // of the rows of shuffle windows
};

// Scratch memory of ended readers, for later ones. So only the first epoch faults its
// pages in, and its size does not depend on which thread reads which column. Thread-safe.
// Do not use it in a forked child, where a thread that no longer exists may hold its
// lock.
class ScratchPool {
 public:
  // Scratch of a thread: the last one returned, or fresh.
  std::unique_ptr<DecodeScratch> TakeThread() {
    const std::lock_guard lock(mutex_);
    if (threads_.empty()) {
      // So that ReturnThread never allocates.
      threads_.reserve(++num_made_);
      return std::make_unique<DecodeScratch>();
    }
    std::unique_ptr<DecodeScratch> scratch = std::move(threads_.back());
    threads_.pop_back();
    return scratch;
  }
  void ReturnThread(std::unique_ptr<DecodeScratch> scratch) noexcept {
    const std::lock_guard lock(mutex_);
    threads_.push_back(std::move(scratch));
  }

  // Memory of a reader: the last one returned, or fresh.
  KeptScratch TakeKept() {
    const std::lock_guard lock(mutex_);
    return std::exchange(kept_, {});
  }
  void ReturnKept(KeptScratch kept) {
    const std::lock_guard lock(mutex_);
    // The argument frees the replaced memory after the lock is released.
    std::swap(kept_, kept);
  }

 private:
  std::mutex mutex_;
  std::vector<std::unique_ptr<DecodeScratch>> threads_;  // guarded by mutex_
  size_t num_made_ = 0;                                  // guarded by mutex_
  KeptScratch kept_;                                     // guarded by mutex_
};

}  // namespace torchparquet
