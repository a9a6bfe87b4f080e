#pragma once

#include <sys/types.h>

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

#include "batches/batch_ring.h"
#include "batches/jagged.h"
#include "batches/layout.h"
#include "files/reader_files.h"
#include "prefetch/prefetcher.h"
#include "reader/memory_plan.h"
#include "reader/reader_costs.h"
#include "reader/reader_memory.h"
#include "reader/waits.h"
#include "sources/remote_reads.h"
#include "tasks/reader_spec.h"
#include "tasks/task_context.h"
#include "tasks/task_stream.h"

namespace torchparquet {

// The work of a reader so far, and its present state. Costs are counted as tasks end,
// waits while they last.
struct ReaderStats {
  int64_t batches = 0;  // handed out
  int64_t rows = 0;     // handed out
  // By task: what it brings of those rows.
  std::vector<int64_t> delivered_bytes = {};
  std::vector<CostSums> columns = {};  // by task
  std::map<int, CostSums> codecs = {};
  std::chrono::nanoseconds consumer_wait{0};  // for batches
  std::chrono::nanoseconds first_wait{0};     // thereof, for the first one
  RoomWaits::Sums room_waits = {};            // of all threads
  std::chrono::nanoseconds idle_at_end{0};    // of all threads
  std::chrono::nanoseconds byte_waits{0};     // of all threads, for bytes of stores
  // What all readers of the process fetched since this one began.
  FetchStats fetched = {};
  bool is_http = false;
  int64_t bytes_from_cache = 0;  // since this one began, by all of the data set
  int64_t num_waits = 0;         // of all threads, that have begun
  int64_t num_complete = 0;      // batches that wait to be taken
  int64_t num_in_flight = 0;     // batches, with those
  int64_t held_bytes = 0;        // by batches in flight and what is kept beside them
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
  // Of `memory`, which is an earlier reader's, what has the sizes and bounds of this one
  // is used. Throws Error(kInvalidArgument) where max_memory is too small.
  explicit ParallelReader(ReaderSpec spec, ReaderMemory memory = {});
  ~ParallelReader();
  ParallelReader(const ParallelReader&) = delete;
  ParallelReader& operator=(const ParallelReader&) = delete;

  // The next batch in plan order; see BatchRing::Take. Starts the threads at first.
  BatchRing::TakeResult Next(std::chrono::milliseconds timeout);
  // True if Next would return a batch at once, rather than wait or throw.
  bool next_is_ready() const;
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

  // For a later reader; no slabs with lent_slabs.
  ReaderMemory memory() const {
    return {state_->slabs, state_->jagged.pool(), state_->scratch};
  }

 private:
  // Everything that the threads share. A forked child does not destroy it: there, its
  // locks and threads are in no known state.
  struct State {
    State(ReaderSpec reader_spec, ReaderMemory offered);
    TaskContext context();
    std::unique_ptr<Prefetcher> MakePrefetcher();
    FetchStats Fetched() const;
    int64_t CachedBytes() const;

    const ReaderSpec spec;
    const BatchMap batches;
    const BatchLayout layout;
    const MemoryPlan memory;
    const std::shared_ptr<SlabPool> slabs;
    const std::shared_ptr<ScratchPool> scratch;
    const std::shared_ptr<RemoteReads> remote;  // null if no file is in a store
    const std::shared_ptr<ReaderFiles> files;
    const FetchStats fetched_before;
    const int64_t cached_before;
    JaggedMemory jagged;
    BatchRing ring;

    // Set under mutex, so that no thread misses it before it waits; read without it
    // in the middle of a task.
    std::atomic<bool> stopping{false};

    std::mutex mutex;
    std::condition_variable work;
    const std::unique_ptr<Prefetcher> prefetcher;  // null if no file is in a store
    const std::unique_ptr<TaskStream> tasks;       // used under mutex
    std::deque<BatchMemory> lent;                  // guarded by mutex, as all below
    bool failed = false;
    bool spare_waits = false;  // for the consumer to have less before it
    bool is_pressed = false;   // tasks wait for memory of variable length
    ReaderCosts costs;
    ConsumerWait consumer_wait;  // written by who is in Next, read under mutex
    RoomWaits room_waits{&consumer_wait};
    RoomWaits byte_waits{&consumer_wait};
    ThreadEnds thread_ends;
    int64_t num_waits = 0;

    std::mutex lifecycle;              // starting and joining; taken before mutex
    std::vector<std::thread> threads;  // guarded by lifecycle
    bool started = false;              // guarded by lifecycle
    bool stopped = false;              // guarded by lifecycle
  };

  void Start();
  void CheckProcess() const;
  BatchRing::TakeResult Take(std::chrono::milliseconds timeout);
  std::vector<int64_t> DeliveredBytes() const;
  static std::shared_ptr<SlabPool> ChooseSlabs(std::shared_ptr<SlabPool> offered,
                                               const State& state);

  // Run by the decode threads. A lock that is passed holds State::mutex.
  static void Work(State* state, std::unique_ptr<DecodeScratch> scratch, bool is_spare);
  static std::unique_ptr<DecodeTask> NextTask(State* state,
                                              std::unique_lock<std::mutex>& lock,
                                              bool is_spare);
  static void WaitForWork(State* state, RoomWaits* waits,
                          std::unique_lock<std::mutex>& lock);
  static bool HasEnough(const State& state);
  static bool LetsThreadGoOn(const State& state);
  static bool OpenNext(State* state);
  static BatchMemory TakeMemory(State* state);
  static void OpenBatch(State* state);
  static bool CanOpen(const State& state);
  static bool AwaitsBytes(const State& state);
  static bool CloseIfFinal(State* state);
  static bool RunTask(State* state, DecodeTask* task, DecodeScratch* scratch);
  static void FinishTask(State* state, DecodeTask* task);

  const pid_t owner_pid_;
  std::unique_ptr<State> state_;
  // Counts of the batches handed out. Guarded by State::mutex.
  int64_t num_batches_ = 0;
  int64_t num_rows_ = 0;
  std::vector<int64_t> items_bytes_;  // by field of variable length
  std::chrono::nanoseconds first_wait_{0};
};

}  // namespace torchparquet
