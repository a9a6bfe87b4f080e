#include "reader/schedule/scratch_pool.h"

#include <utility>

namespace torchparquet {

std::unique_ptr<DecodeScratch> ScratchPool::TakeThread() {
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

void ScratchPool::ReturnThread(std::unique_ptr<DecodeScratch> scratch) noexcept {
  const std::lock_guard lock(mutex_);
  threads_.push_back(std::move(scratch));
}

KeptScratch ScratchPool::TakeKept() {
  const std::lock_guard lock(mutex_);
  return std::exchange(kept_, {});
}

void ScratchPool::ReturnKept(KeptScratch kept) {
  const std::lock_guard lock(mutex_);
  // The argument frees the replaced memory after the lock is released.
  std::swap(kept_, kept);
}

}  // namespace torchparquet
