#pragma once

#include <sys/types.h>

#include <cstdint>
#include <memory>
#include <mutex>
#include <vector>

namespace torchparquet {

// Recycled memory for batches of one size. Slabs are cut from large arenas that ask for
// huge pages, so in steady state no page is faulted in or zeroed. Thread-safe. A slab may
// outlive every reader: it keeps its pool alive, and the arenas are unmapped when the
// pool and its last slab are gone.
class SlabPool : public std::enable_shared_from_this<SlabPool> {
 public:
  static constexpr int64_t kSlabAlignment = 64;

  // Owns one slab of the pool and returns it when destroyed. Movable only. May be
  // destroyed on any thread. In a forked child, a thread that no longer exists may hold
  // the pool's lock, so the memory is abandoned.
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

  // The pool grows to `kept_bytes` soon and keeps them: until then it takes fresh slabs,
  // so that it does not grow at a later time when most are in use. It takes more only if
  // more are in use, and keeps `extra_bytes` of those. Idle slabs beyond that give their
  // pages back to the system.
  static std::shared_ptr<SlabPool> Make(int64_t slab_bytes, int64_t kept_bytes,
                                        int64_t extra_bytes = 0);
  ~SlabPool();
  SlabPool(const SlabPool&) = delete;
  SlabPool& operator=(const SlabPool&) = delete;

  // Throws Error(kOutOfMemory) if the system has no more memory.
  Slab Acquire();

  int64_t slab_bytes() const { return slab_bytes_; }
  // Mapped bytes, idle or not.
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
  // Idle slabs with pages, and idle slabs without. Last in, first out: the warmest first.
  std::vector<uint8_t*> warm_;  // guarded by mutex_
  std::vector<uint8_t*> cold_;  // guarded by mutex_
  int64_t mapped_bytes_ = 0;    // guarded by mutex_
  int64_t num_slabs_ = 0;       // guarded by mutex_; idle or not
};

}  // namespace torchparquet
