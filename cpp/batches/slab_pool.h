#pragma once

#include <sys/types.h>

#include <cstdint>
#include <memory>
#include <mutex>
#include <vector>

namespace torchparquet {

// Recycled memory for batches of one size. Slabs are cut from large arenas that are
// advised to use huge pages, so that in steady state no page is faulted in or
// zeroed. Thread-safe. A slab may outlive every reader: it keeps its pool alive, and
// the arenas are unmapped when the pool and its last slab are gone.
class SlabPool : public std::enable_shared_from_this<SlabPool> {
 public:
  static constexpr int64_t kSlabAlignment = 64;

  // Owns one slab of the pool and returns it when destroyed. Movable only. May be
  // destroyed on any thread, also in a forked child, where the memory is abandoned
  // because the pool's lock may have been held by a thread that no longer exists.
  class Slab {
   public:
    Slab() = default;
    Slab(std::shared_ptr<SlabPool> pool, uint8_t* data)
        : pool_(std::move(pool)), data_(data) {}
    Slab(Slab&& other) noexcept;
    Slab& operator=(Slab&& other) noexcept;
    ~Slab();

    uint8_t* data() const { return data_; }

   private:
    std::shared_ptr<SlabPool> pool_;
    uint8_t* data_ = nullptr;
  };

  // The pool soon has `kept_bytes` and keeps them: it takes fresh slabs until it does, so
  // that it does not grow at whatever later time most are in use at once. It takes more
  // only where more are in use, and of those keeps `extra_bytes`. Slabs that lie idle
  // beyond that give their pages back to the system.
  static std::shared_ptr<SlabPool> Make(int64_t slab_bytes, int64_t kept_bytes,
                                        int64_t extra_bytes = 0);
  ~SlabPool();
  SlabPool(const SlabPool&) = delete;
  SlabPool& operator=(const SlabPool&) = delete;

  // Throws Error(kOutOfMemory) when the system has no more memory.
  Slab Acquire();

  int64_t slab_bytes() const { return slab_bytes_; }
  // Bytes mapped in all, idle or not.
  int64_t mapped_bytes() const;
  int64_t num_idle() const;

 private:
  struct Arena {
    void* mapping;
    size_t mapped_bytes;
  };

  SlabPool(int64_t slab_bytes, int64_t kept_bytes, int64_t extra_bytes);
  void Grow();
  void Return(uint8_t* data) noexcept;

  const int64_t slab_bytes_;
  const int64_t kept_bytes_;
  const int64_t extra_bytes_;
  const pid_t owner_pid_;
  mutable std::mutex mutex_;
  std::vector<Arena> arenas_;  // guarded by mutex_
  // Idle slabs that have their pages, and those that have none yet or none any more.
  // Last in, first out: the warmest first.
  std::vector<uint8_t*> warm_;  // guarded by mutex_
  std::vector<uint8_t*> cold_;  // guarded by mutex_
  int64_t mapped_bytes_ = 0;    // guarded by mutex_
  int64_t num_slabs_ = 0;       // guarded by mutex_; idle or not
};

}  // namespace torchparquet
