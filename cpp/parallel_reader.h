#pragma once

#include <sys/types.h>

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <list>
#include <memory>
#include <mutex>
#include <optional>
#include <thread>
#include <vector>

#include "batch_ring.h"
#include "column_decoder.h"
#include "layout.h"
#include "memory_plan.h"
#include "parquet_file.h"
#include "share.h"
#include "slab_pool.h"

namespace torchparquet {

// One stored column and the place of its values: element `element` of field `field`.
struct ColumnSpec {
  ColumnRequest source;
  int64_t field = 0;
  int64_t element = 0;
  NullPolicy nulls = NullPolicy::kError;
  uint64_t fill_bits = 0;
};

// All that a reader is told. Immutable once the reader is made.
struct ReaderSpec {
  std::vector<PlannedFile> files;
  Share share;
  int64_t batch_rows = 0;  // 0: one batch per chunk
  std::vector<FieldSpec> fields;
  std::vector<ColumnSpec> columns;
  int64_t row_id_field = -1;     // int64; -1: not wanted
  int64_t row_valid_field = -1;  // bool; -1: not wanted
  int64_t num_threads = 1;
  int64_t max_memory_bytes = int64_t{1} << 30;
  bool lent_slabs = false;  // the consumer brings the memory of batches
};

struct ReaderStats {
  int64_t batches = 0;        // handed out
  int64_t rows = 0;           // handed out
  double wait_seconds = 0;    // the consumer spent in Next
  double decode_seconds = 0;  // all threads together
};

// Reads one share of an epoch into batches on threads of its own.
//
// Threads: none exists before the first Next. Decode threads touch no Python object;
// they end by themselves at the end of the share or after a failure, and are joined by
// Stop. Next, Lend and Stop may be called from any thread, Next from one at a time.
// In a forked child a reader has no threads: Next throws, Stop and destruction leave
// everything untouched.
class ParallelReader {
 public:
  // Slabs come from `pool` when its slabs have the layout's size, else from a new one.
  // Throws Error(kInvalidArgument) for a specification that contradicts itself.
  ParallelReader(ReaderSpec spec, std::shared_ptr<SlabPool> pool);
  ~ParallelReader();
  ParallelReader(const ParallelReader&) = delete;
  ParallelReader& operator=(const ParallelReader&) = delete;

  // The next batch in plan order; see BatchRing::Take. Starts the threads at first.
  BatchRing::TakeResult Next(std::chrono::milliseconds timeout);
  // Lends the memory of one batch, of layout().slab_bytes bytes. It comes back as a
  // batch, with the token; what is never used is only forgotten.
  void Lend(uint8_t* data, int64_t token);
  // Ends the threads and forgets what is in flight. Idempotent.
  void Stop();

  const BatchLayout& layout() const { return state_->layout; }
  int64_t num_batches() const { return state_->batches.num_batches(); }
  // Number of slabs that may be in flight: how many to lend at first.
  int64_t max_slabs() const { return state_->memory.max_slabs; }
  // All zero in a forked child.
  ReaderStats stats() const;

  // The pool in use, for a later reader of the same layout; null with lent_slabs.
  const std::shared_ptr<SlabPool>& pool() const { return state_->pool; }

 private:
  // A slice whose columns are being decoded.
  struct OpenSlice {
    struct Span {  // the slice's rows within one batch
      InFlightBatch* batch;
      int64_t first_row;  // within the batch
      int64_t num_rows;
    };
    Slice slice;
    int64_t number = 0;
    int64_t first_batch = 0;
    std::vector<Span> spans = {};
    int64_t next_task = 0;
    int64_t tasks_left = 0;
  };
  struct Task {
    OpenSlice* slice;
    int64_t index;  // a column, or one of the made-up columns behind them
  };
  class TaskProgress;

  // Everything that the threads share. It is left behind, not destroyed, in a forked
  // child, where its locks and threads are in no known state.
  struct State {
    State(ReaderSpec reader_spec, std::shared_ptr<SlabPool> slab_pool);

    const ReaderSpec spec;
    const BatchMap batches;
    const BatchLayout layout;
    const MemoryPlan memory;
    const std::shared_ptr<SlabPool> pool;
    ParquetFiles files;
    BatchRing ring;

    // Set under mutex, so that no thread misses it before it waits; read without it
    // in the middle of a task.
    std::atomic<bool> stopping{false};

    std::mutex mutex;
    std::condition_variable work;
    SliceWalk walk;               // guarded by mutex, as all below
    std::list<OpenSlice> slices;  // in plan order
    std::deque<BatchMemory> lent;
    InFlightBatch* last_batch = nullptr;  // may still lack rows of slices to come
    int64_t num_slices = 0;
    int64_t running_tasks = 0;
    bool failed = false;
    std::chrono::nanoseconds decode_time{0};

    std::mutex lifecycle;              // starting and joining; taken before mutex
    std::vector<std::thread> threads;  // guarded by lifecycle
    bool started = false;              // guarded by lifecycle
  };

  void Start();
  void CheckProcess() const;
  static std::shared_ptr<SlabPool> ChoosePool(std::shared_ptr<SlabPool> offered,
                                              const State& state);

  // Run by the decode threads. A lock that is passed holds State::mutex.
  static void Work(State* state);
  static std::optional<Task> NextTask(State* state, std::unique_lock<std::mutex>& lock);
  static bool OpenNextSlice(State* state);
  static int64_t NewBatches(const State& state, const Slice& slice);
  static BatchMemory TakeMemory(State* state);
  static bool CanOpen(const State& state);
  static void RunTask(State* state, const Task& task, DecodeScratch* scratch);
  static void FinishTask(State* state, const Task& task);
  static std::vector<Segment> SegmentsOf(const State& state, const Task& task);
  static void FillRowIds(const OpenSlice& slice, std::span<const Segment> segments);

  const pid_t owner_pid_;
  std::unique_ptr<State> state_;
  mutable std::mutex stats_mutex_;
  ReaderStats stats_;  // guarded by stats_mutex_
};

}  // namespace torchparquet
