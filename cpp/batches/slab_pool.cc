#include "batches/slab_pool.h"

#include <pthread.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <string>
#include <utility>

#include "base/errors.h"

namespace torchparquet {
namespace {

constexpr int64_t kHugePageBytes = int64_t{2} << 20;
// Arenas of this size waste at most 6 % of memory to huge-page alignment.
constexpr int64_t kArenaBytes = int64_t{32} << 20;

// The number of this process. Asking the system for it takes as long as all else that
// becomes of a batch of a few rows when it dies.
std::atomic<pid_t> own_pid;

// Throws where there is no memory to be told of forks.
pid_t FollowForks() {
  static const bool follows = [] {
    own_pid = getpid();
    return pthread_atfork(nullptr, nullptr, [] { own_pid = getpid(); }) == 0;
  }();
  if (!follows) throw Error(ErrorKind::kOutOfMemory, "the system has no memory left");
  return own_pid;
}

int64_t RoundUp(int64_t value, int64_t step) { return (value + step - 1) / step * step; }

// On macOS, pages that are not needed keep their content and their memory.
#if defined(__APPLE__)
constexpr int kGiveBack = MADV_FREE;
#else
constexpr int kGiveBack = MADV_DONTNEED;
#endif

// Gives the whole pages within the slab back to the system. The addresses stay usable.
void ReleasePages(uint8_t* data, int64_t num_bytes) {
  const int64_t page_bytes = sysconf(_SC_PAGESIZE);
  const auto begin =
      RoundUp(reinterpret_cast<intptr_t>(data), page_bytes);  // page arithmetic
  const auto end =
      (reinterpret_cast<intptr_t>(data) + num_bytes) / page_bytes * page_bytes;
  if (end > begin) {
    madvise(reinterpret_cast<void*>(begin), static_cast<size_t>(end - begin), kGiveBack);
  }
}

}  // namespace

SlabPool::Slab::Slab(Slab&& other) noexcept
    : pool_(std::move(other.pool_)), data_(std::exchange(other.data_, nullptr)) {}

SlabPool::Slab& SlabPool::Slab::operator=(Slab&& other) noexcept {
  std::swap(pool_, other.pool_);
  std::swap(data_, other.data_);
  return *this;
}

SlabPool::Slab::~Slab() {
  if (data_ != nullptr) pool_->Return(data_);
}

std::shared_ptr<SlabPool> SlabPool::Make(int64_t slab_bytes, int64_t kept_bytes,
                                         int64_t extra_bytes) {
  return std::shared_ptr<SlabPool>(new SlabPool(slab_bytes, kept_bytes, extra_bytes));
}

SlabPool::SlabPool(int64_t slab_bytes, int64_t kept_bytes, int64_t extra_bytes)
    : slab_bytes_(RoundUp(std::max<int64_t>(slab_bytes, 1), kSlabAlignment)),
      kept_bytes_(kept_bytes),
      extra_bytes_(extra_bytes),
      owner_pid_(FollowForks()) {}

SlabPool::~SlabPool() {
  for (const Arena& arena : arenas_) munmap(arena.mapping, arena.mapped_bytes);
}

SlabPool::Slab SlabPool::Acquire() {
  const std::lock_guard lock(mutex_);
  const int64_t num_touched = num_slabs_ - std::ssize(cold_);
  const bool wants_fresh = warm_.empty() || num_touched * slab_bytes_ < kept_bytes_;
  if (wants_fresh && cold_.empty()) Grow();
  std::vector<uint8_t*>& idle = wants_fresh && !cold_.empty() ? cold_ : warm_;
  uint8_t* data = idle.back();
  idle.pop_back();
  return Slab(shared_from_this(), data);
}

// Requires mutex_. Throws if there is no memory and nothing is idle.
void SlabPool::Grow() {
  const int64_t num_slabs = std::max<int64_t>(1, kArenaBytes / slab_bytes_);
  // A small pool (small batches, few of them) should not claim a large arena at once.
  const int64_t wanted_slabs =
      std::clamp<int64_t>(2 * (mapped_bytes_ / slab_bytes_), 1, num_slabs);
  const int64_t arena_bytes = RoundUp(wanted_slabs * slab_bytes_, kHugePageBytes);
  const auto mapped_bytes = static_cast<size_t>(arena_bytes + kHugePageBytes);
  // Before the mapping, so that nothing after it throws; and Return never allocates.
  const int64_t added_slabs = arena_bytes / slab_bytes_;
  arenas_.reserve(arenas_.size() + 1);
  warm_.reserve(static_cast<size_t>(num_slabs_ + added_slabs));
  cold_.reserve(static_cast<size_t>(num_slabs_ + added_slabs));
  void* mapping = mmap(nullptr, mapped_bytes, PROT_READ | PROT_WRITE,
                       MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (mapping == MAP_FAILED) {
    if (!warm_.empty()) return;
    throw Error(ErrorKind::kOutOfMemory,
                Text("the system has no memory left for batches: ", arena_bytes,
                     " bytes wanted"));
  }
  arenas_.push_back({mapping, mapped_bytes});
  mapped_bytes_ += arena_bytes;
  auto* base = reinterpret_cast<uint8_t*>(  // page arithmetic
      RoundUp(reinterpret_cast<intptr_t>(mapping), kHugePageBytes));
#if defined(MADV_HUGEPAGE)
  // A pool of less would wait for the system to clear a page that it uses little of.
  if (kept_bytes_ + extra_bytes_ >= kHugePageBytes) {
    // Advice only: may fail.
    madvise(base, static_cast<size_t>(arena_bytes), MADV_HUGEPAGE);
  }
#endif
  num_slabs_ += added_slabs;
  for (int64_t i = added_slabs; i-- > 0;) cold_.push_back(base + i * slab_bytes_);
}

void SlabPool::Return(uint8_t* data) noexcept {
  if (own_pid.load(std::memory_order_relaxed) != owner_pid_) return;
  const std::lock_guard lock(mutex_);
  if (std::ssize(warm_) * slab_bytes_ >= kept_bytes_ + extra_bytes_) {
    ReleasePages(data, slab_bytes_);
    cold_.push_back(data);
  } else {
    warm_.push_back(data);
  }
}

int64_t SlabPool::mapped_bytes() const {
  const std::lock_guard lock(mutex_);
  return mapped_bytes_;
}

int64_t SlabPool::num_idle() const {
  const std::lock_guard lock(mutex_);
  return static_cast<int64_t>(warm_.size() + cold_.size());
}

}  // namespace torchparquet
