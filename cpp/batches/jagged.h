#pragma once

#include <sys/types.h>

#include <atomic>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <vector>

#include "kernels/byte_sink.h"

namespace torchparquet {

// Recycled memory for values whose number is known only once they are decoded.
// Thread-safe. What is leased may outlive every reader.
class SinkPool : public std::enable_shared_from_this<SinkPool> {
 public:
  // Owns a sink and returns its memory when destroyed, on any thread. In a forked child,
  // where the pool's lock may be held by a thread that no longer exists, the memory is
  // freed instead. Movable only.
  class Lease {
   public:
    Lease() = default;  // of an empty sink and no pool
    Lease(std::shared_ptr<SinkPool> pool, kernels::ByteSink sink)
        : pool_(std::move(pool)), sink_(std::move(sink)) {}
    Lease(Lease&&) noexcept = default;
    Lease& operator=(Lease&& other) noexcept;
    ~Lease() { Return(); }

    kernels::ByteSink& operator*() { return sink_; }
    kernels::ByteSink* operator->() { return &sink_; }
    const kernels::ByteSink* operator->() const { return &sink_; }

   private:
    void Return() noexcept;

    std::shared_ptr<SinkPool> pool_;
    kernels::ByteSink sink_;
  };

  // Sinks that lie idle hold at most `max_idle_bytes`; one sink holds at most
  // `max_sink_bytes`, which is checked before any are taken.
  static std::shared_ptr<SinkPool> Make(int64_t max_idle_bytes, int64_t max_sink_bytes);

  // An empty sink with room for about `likely_bytes` bytes.
  Lease Acquire(int64_t likely_bytes);
  int64_t max_sink_bytes() const { return max_sink_bytes_; }
  int64_t idle_bytes() const;

 private:
  SinkPool(int64_t max_idle_bytes, int64_t max_sink_bytes);
  void Return(kernels::ByteSink sink) noexcept;

  const int64_t max_idle_bytes_;
  const int64_t max_sink_bytes_;
  const pid_t owner_pid_;
  mutable std::mutex mutex_;
  // By capacity: hundreds lie idle where batches are small and fields many.
  std::multimap<size_t, kernels::ByteSink> idle_;  // guarded by mutex_
  int64_t idle_bytes_ = 0;                         // guarded by mutex_
};

// What one field of variable length has in a batch, or one task has of it, beside the
// slab. Offsets lead from a row to the items of the first list, from those to the next
// list's, and so on, at last to values. The slab holds the first of them, one for each
// row and one more; here are the rest.
struct JaggedItems {
  // Where the items of each list begin, int64, for every list but the outermost.
  std::vector<SinkPool::Lease> starts;
  SinkPool::Lease values;
  SinkPool::Lease valid;  // one byte for each value; no memory where no mask is wanted
  // How many items the offsets of each level lead to; at the last level values, or, where
  // values are strings, their bytes.
  std::vector<int64_t> num_items;
  bool has_strings = false;  // whose bytes the last offsets lead to
  bool has_valid = false;    // whether a mask is wanted

  int64_t num_bytes() const;
};

// A run of rows of one batch, by one task.
struct JaggedPart {
  int64_t first_row = 0;  // within the batch
  int64_t num_rows = 0;
  JaggedItems items;
};

// A field of variable length in a batch in flight.
struct JaggedColumn {
  int64_t* offsets = nullptr;  // in the slab
  std::vector<JaggedPart> parts = {};
  uint64_t value_bytes = 0;  // of all parts
};

// Puts the parts together in the order of their rows, and completes the offsets of all
// levels: what begins where was counted within each part. All parts must be there.
JaggedItems JoinParts(JaggedColumn column);

// The memory of fields of variable length, over a reader's life. Thread-safe.
class JaggedMemory {
 public:
  // `row_bytes` is what each such field's rows are likely to take. All together may take
  // about `max_bytes` in batches in flight.
  JaggedMemory(std::vector<double> row_bytes, int64_t max_bytes,
               std::shared_ptr<SinkPool> pool);

  // Empty, with room for about `num_rows` rows of the field, and for a mask of its values
  // where one is wanted.
  JaggedItems Begin(int64_t field, int64_t num_rows, int64_t num_offsets, bool has_valid);
  // What a task has decoded of so many rows: it is in flight now, and the next begin with
  // enough room.
  void Learn(int64_t field, int64_t num_rows, const JaggedItems& items);
  // So many bytes of what was learnt are in flight no more.
  void Release(int64_t num_bytes) { num_bytes_ -= num_bytes; }
  // Recycled memory that is not counted.
  SinkPool::Lease Acquire(int64_t likely_bytes) { return pool_->Acquire(likely_bytes); }
  // What the consumer has taken is in flight no more.
  void Forget(const std::vector<JaggedItems>& items);

  // About what fields of variable length hold in batches in flight.
  int64_t num_bytes() const { return num_bytes_; }
  // Whether that is so much that only the first of those batches may have more.
  bool is_full() const { return num_bytes_ > max_bytes_; }

  const std::shared_ptr<SinkPool>& pool() const { return pool_; }

 private:
  // By field; read and written without order among threads, as they only estimate.
  std::vector<std::atomic<double>> row_bytes_;
  std::atomic<int64_t> num_bytes_{0};
  const int64_t max_bytes_;
  const std::shared_ptr<SinkPool> pool_;
};

}  // namespace torchparquet
