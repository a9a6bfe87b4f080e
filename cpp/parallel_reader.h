#pragma once

#include <sys/types.h>

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <memory>
#include <mutex>
#include <optional>
#include <thread>
#include <vector>

#include "batch_ring.h"
#include "jagged.h"
#include "layout.h"
#include "memory_plan.h"
#include "parquet_file.h"
#include "reader_spec.h"
#include "share.h"
#include "slab_pool.h"
#include "slice_queue.h"
#include "slice_tasks.h"

namespace torchparquet {

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
  // So do the items of fields of variable length from `sinks`, when its bounds fit.
  ParallelReader(ReaderSpec spec, std::shared_ptr<SlabPool> pool,
                 std::shared_ptr<SinkPool> sinks = nullptr);
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
  const std::shared_ptr<SinkPool>& sinks() const { return state_->jagged.pool(); }

 private:
  // Everything that the threads share. It is left behind, not destroyed, in a forked
  // child, where its locks and threads are in no known state.
  struct State {
    State(ReaderSpec reader_spec, std::shared_ptr<SlabPool> slab_pool,
          std::shared_ptr<SinkPool> sink_pool);

    const ReaderSpec spec;
    const BatchMap batches;
    const BatchLayout layout;
    const MemoryPlan memory;
    const std::shared_ptr<SlabPool> pool;
    const std::vector<bool> is_jagged;  // by task
    JaggedMemory jagged;
    ParquetFiles files;
    BatchRing ring;
    const SliceTaskRunner runner;

    // Set under mutex, so that no thread misses it before it waits; read without it
    // in the middle of a task.
    std::atomic<bool> stopping{false};

    std::mutex mutex;
    std::condition_variable work;
    SliceWalk walk;  // guarded by mutex, as all below
    SliceQueue slices;
    std::deque<BatchMemory> lent;
    InFlightBatch* last_batch = nullptr;  // may still lack rows of slices to come
    int64_t num_slices = 0;
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
  static void Work(State* state, bool is_spare);
  static std::optional<SliceTask> NextTask(State* state,
                                           std::unique_lock<std::mutex>& lock,
                                           bool is_spare);
  static bool HasEnough(const State& state);
  static bool OpenNextSlice(State* state);
  static int64_t NewBatches(const State& state, const Slice& slice);
  static BatchMemory TakeMemory(State* state);
  static InFlightBatch& OpenBatch(State* state, int64_t num_rows);
  static bool CanOpen(const State& state);
  static bool CloseIfFinal(State* state);
  static std::optional<SliceTask> TakeTask(State* state, SliceQueue::Choice choice);
  static bool RunTask(State* state, SliceTask* task, DecodeScratch* scratch);
  static SliceTask FinishTask(State* state, SliceTask task);

  const pid_t owner_pid_;
  std::unique_ptr<State> state_;
  mutable std::mutex stats_mutex_;
  ReaderStats stats_;  // guarded by stats_mutex_
};

}  // namespace torchparquet
