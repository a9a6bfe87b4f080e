#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <mutex>
#include <optional>
#include <string_view>
#include <vector>

#include "base/errors.h"
#include "batches/jagged.h"
#include "batches/slab_pool.h"

namespace torchparquet {

// The memory of one batch: a slab of our pool, or one that the consumer lent.
struct BatchMemory {
  uint8_t* data = nullptr;
  SlabPool::Slab slab;      // empty for lent memory
  int64_t lent_token = -1;  // identifies the slab to the consumer
};

// A batch between its opening and its hand-over.
struct InFlightBatch {
  InFlightBatch(BatchMemory batch_memory, int64_t rows, int64_t cells,
                std::vector<JaggedColumn> jagged_columns)
      : memory(std::move(batch_memory)),
        num_rows(rows),
        missing_cells(cells),
        jagged(std::move(jagged_columns)) {}

  // Adds a task's part of a field of variable length, before the task counts its cells
  // down. `path` names the column and outlives the batch. Thread-safe.
  void AddPart(int64_t jagged_index, JaggedPart part, std::string_view path);
  // Joins the parts on the thread that brought the last cell. A failure to join is the
  // failure of the batch, not of that thread's column.
  void Complete();

  BatchMemory memory;
  int64_t num_rows;
  int64_t number = 0;  // in the stream
  // (row, column) pairs that are not written yet. Each column's task counts it down: in
  // another cache line than what each reads above.
  alignas(64) std::atomic<int64_t> missing_cells;
  std::atomic<bool> is_complete{false};
  std::mutex jagged_mutex;
  std::vector<JaggedColumn> jagged;  // guarded by jagged_mutex until the last cell
  std::vector<JaggedItems> items;    // of the same fields; when complete
  std::optional<Error> failure;      // instead of items
};

// The place of a failure in the order of the stream. The least one is reported, so the
// same data fails in the same way whatever the timing of threads.
struct FailureKey {
  int64_t batch = 0;
  int64_t slice = 0;
  int64_t column = 0;

  auto operator<=>(const FailureKey&) const = default;
};

// The batches in flight, in plan order. Producers open a batch, fill its cells from any
// number of threads and count them down. The consumer takes complete batches from the
// front. A failure is raised when all batches before it have been taken. Thread-safe.
//
//   Open --> in flight --CountDown to 0--> complete --Take, at the front--> taken
//
//   Fail, any number of times: the least key counts --Close--> final: Take throws it,
//                                                     once all before it are taken
class BatchRing {
 public:
  // `num_batches` is the length of the whole stream, or the most that it may have.
  BatchRing(int64_t num_batches, int64_t max_in_flight);

  // Producer side.
  bool HasRoom(int64_t num_batches) const;
  // Opens the next batch; the caller has checked for room. The reference stays valid
  // until the batch is taken, which cannot happen before its last cell is counted down.
  InFlightBatch& Open(BatchMemory memory, int64_t num_rows, int64_t num_cells,
                      std::vector<JaggedColumn> jagged = {});
  // A batch in flight, by its number in the stream.
  InFlightBatch& At(int64_t batch);
  int64_t num_in_flight() const;
  // The next batch to take, or null if none is open. For comparison only.
  const InFlightBatch* front() const;
  bool front_is_complete() const;
  // True if Take would return the front at once, instead of waiting or throwing.
  bool front_is_ready() const;
  // Number of batches taken so far: the index of the front.
  int64_t num_taken() const;
  // Number of batches opened so far: the index of the next one.
  int64_t num_opened() const;
  void CountDown(InFlightBatch& batch, int64_t num_cells);
  // Ends the stream after so many batches. The last one is cut to `last_rows` rows of so
  // many cells if it is open.
  void EndAfter(int64_t num_batches, int64_t last_rows, int64_t row_cells);
  void Fail(const FailureKey& key, Error error);
  // The first failure recorded so far.
  std::optional<FailureKey> failure_key() const;
  // No more cells will be counted down: a recorded failure is final.
  void Close();

  // Number of complete batches that wait.
  int64_t num_complete() const { return num_complete_.load(std::memory_order_relaxed); }

  // Consumer side.
  enum class TakeStatus { kTaken, kTimedOut, kEnded };
  struct TakeResult {
    TakeStatus status;
    BatchMemory memory;  // when taken
    int64_t num_rows = 0;
    std::vector<JaggedItems> items = {};  // of the fields of variable length
  };
  // Waits for the front batch, at most `timeout`. Once all batches before the first
  // failure are taken, throws that failure, now and at every later call.
  TakeResult Take(std::chrono::milliseconds timeout);
  // Takes up to `max_batches` batches of `num_rows` rows that Take would return at once.
  std::vector<TakeResult> TakeReady(int64_t num_rows, int64_t max_batches);
  // Makes this and every later wait throw Error(kStopped).
  void Stop();

 private:
  bool FrontIsComplete() const;
  TakeResult TakeFront();

  const int64_t max_in_flight_;
  mutable std::mutex mutex_;
  int64_t num_batches_;  // guarded by mutex_
  std::condition_variable changed_;
  std::deque<InFlightBatch> in_flight_;   // guarded by mutex_; references stay valid
  std::atomic<int64_t> num_complete_{0};  // a hint, read without the lock
  int64_t num_taken_ = 0;                 // guarded by mutex_, as all below
  bool closed_ = false;
  bool stopped_ = false;
  std::optional<FailureKey> failure_key_;
  std::optional<Error> failure_;
};

}  // namespace torchparquet
