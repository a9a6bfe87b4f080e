#pragma once

#include <sys/types.h>

#include <atomic>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string_view>
#include <vector>

#include "base/errors.h"
#include "kernels/byte_sink.h"

namespace torchparquet {

// Recycled memory for strings and lists, whose size is known only once they are decoded.
// Thread-safe. A lease may outlive every reader.
class SinkPool : public std::enable_shared_from_this<SinkPool> {
 public:
  // Owns a sink and returns its memory when destroyed, on any thread. In a forked child,
  // a thread that no longer exists may hold the pool's lock, so the memory is freed
  // instead. Movable only.
  class Lease {
   public:
    Lease() = default;  // an empty sink without a pool
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

  // Idle sinks hold at most `max_idle_bytes` in all. One sink holds at most
  // `max_sink_bytes`, which is checked before memory is taken.
  static std::shared_ptr<SinkPool> Make(int64_t max_idle_bytes, int64_t max_sink_bytes);

  // Returns an empty sink with room for about `likely_bytes` bytes.
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
  // By capacity. Hundreds are idle if batches are small and fields many.
  std::multimap<size_t, kernels::ByteSink> idle_;  // guarded by mutex_
  int64_t idle_bytes_ = 0;                         // guarded by mutex_
};

// The items of one field of variable length, in a batch or from one task, apart from the
// slab. Offsets lead from a row to the items of its first list, from those to the items
// of the next list, and so on to values. The slab holds the offsets of rows, one for each
// row and one more. The other offsets and the values are here.
struct JaggedItems {
  // The begin of each list's items, as int64, for every list but the outermost.
  std::vector<SinkPool::Lease> starts;
  SinkPool::Lease values;
  SinkPool::Lease valid;  // one byte for each value; empty if no mask is wanted
  // The number of items that the offsets of each level lead to: at the last level values
  // or, for strings, bytes.
  std::vector<int64_t> num_items;
  bool has_strings = false;  // then the last offsets lead to bytes
  bool has_valid = false;    // a mask is wanted

  // Then `starts` has the begin of each column's values, and the end of all of them.
  bool is_keyed = false;

  int64_t num_bytes() const;
  // Those of the parts that were joined to these items.
  int64_t num_part_bytes() const;
};

// A run of rows of one batch, from one task.
struct JaggedPart {
  int64_t first_row = 0;  // within the batch
  int64_t num_rows = 0;
  JaggedItems items;
};

// A column of variable length in a batch in flight.
struct JaggedColumn {
  int64_t* offsets = nullptr;          // in the slab
  std::vector<JaggedPart> parts = {};  // none if the field's are too large
  std::string_view path = {};          // of the column in its files
  int64_t num_rows = 0;                // of the parts
};

class JaggedMemory;

// A field of variable length in a batch in flight: one column or, if it is keyed,
// several, whose values are joined one column after the other.
struct JaggedField {
  std::vector<JaggedColumn> columns;
  bool is_keyed = false;
  int64_t weighs = -1;     // the number of the field whose lengths it must have
  uint64_t num_bytes = 0;  // of all parts
  uint64_t max_bytes = 0;  // that they may take
  // Of a keyed field: where its columns' memory begins, the items of the first columns,
  // which are joined already, whether a thread is joining more, and why it could not.
  JaggedMemory* memory = nullptr;
  int64_t first_column = 0;
  JaggedItems items = {};
  size_t num_joined = 0;
  bool is_joining = false;
  std::optional<Error> failure = {};

  bool is_too_large() const { return num_bytes > max_bytes; }
};

// Throws Error(kValuesTooLarge) if the parts hold more than they may.
void CheckSize(const JaggedField& field);

// Joins the parts of a field of one column in the order of their rows and completes the
// offsets of all levels, which are counted within each part until then. All parts must be
// there. Throws Error(kValuesTooLarge) if they hold more than they may.
JaggedItems JoinParts(JaggedField field);

// Appends the values of `column`, the next one of a keyed field, to the field's items,
// and writes its lengths. Those of all columns stand together, from `LengthsOf` on, so
// columns come in order: lengths take the place of offsets. The caller counts the column
// as joined. Throws Error with its name; Error(kListLength) if a length is beyond int32.
void JoinColumn(JaggedColumn column, int64_t num_rows, JaggedField* field);

// The place of the lengths of a keyed field.
int32_t* LengthsOf(const JaggedField& field);

// Throws Error(kListLength), and names column and row of the batch, where the lengths of
// a keyed field of a complete batch are not those of the field that it weighs.
void CheckWeights(const JaggedField& weights, const JaggedField& values,
                  int64_t num_rows);

// The memory of columns of variable length during a reader's life. Thread-safe.
class JaggedMemory {
 public:
  // `row_bytes` is the likely size of a row of each such column. All together may take
  // about `max_bytes` in batches in flight.
  JaggedMemory(std::vector<double> row_bytes, int64_t max_bytes,
               std::shared_ptr<SinkPool> pool);

  // Returns empty items with room for about `num_rows` rows of the column, and for a mask
  // if one is wanted.
  JaggedItems Begin(int64_t column, int64_t num_rows, int64_t num_offsets,
                    bool has_valid);
  // Returns empty items of a keyed field with room for about `num_rows` rows of
  // `num_columns` columns.
  JaggedItems BeginKeyed(int64_t first_column, int64_t num_columns, int64_t num_rows);
  // Counts the items of `num_rows` rows that a task has decoded as in flight. Later items
  // begin with enough room.
  void Learn(int64_t column, int64_t num_rows, const JaggedItems& items);
  // Counts `num_bytes` bytes as no longer in flight.
  void Release(int64_t num_bytes) { num_bytes_ -= num_bytes; }
  // Returns recycled memory that is not counted.
  SinkPool::Lease Acquire(int64_t likely_bytes) { return pool_->Acquire(likely_bytes); }
  // Counts items that the consumer has taken as no longer in flight.
  void Forget(const std::vector<JaggedItems>& items);

  // Bytes of items in batches in flight, roughly.
  int64_t num_bytes() const { return num_bytes_; }
  // True if only the batch at the front may have more.
  bool is_full() const { return num_bytes_ > max_bytes_; }

  const std::shared_ptr<SinkPool>& pool() const { return pool_; }

 private:
  SinkPool::Lease AcquireValues(int64_t first_column, int64_t num_columns,
                                int64_t num_rows);

  // By column. Threads read and write without order, since these are estimates.
  std::vector<std::atomic<double>> row_bytes_;
  std::atomic<int64_t> num_bytes_{0};
  const int64_t max_bytes_;
  const std::shared_ptr<SinkPool> pool_;
};

}  // namespace torchparquet
