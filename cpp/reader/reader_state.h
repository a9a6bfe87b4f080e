#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

#include "base/buffer_pool.h"
#include "base/task_costs.h"
#include "batches/batch_ring.h"
#include "batches/jagged.h"
#include "batches/layout.h"
#include "batches/slab_pool.h"
#include "files/parquet_files.h"
#include "reader/memory_plan.h"
#include "reader/plan/reader_spec.h"
#include "reader/prefetch/carried_fetches.h"
#include "reader/prefetch/prefetcher.h"
#include "reader/schedule/scratch_pool.h"
#include "reader/schedule/task_context.h"
#include "reader/schedule/task_stream.h"
#include "reader/waits.h"
#include "remote/blocks/remote_blocks.h"

namespace torchparquet {

// The memory of a reader, which a later reader uses as far as it fits. Any pointer may be
// null.
struct ReaderMemory {
  std::shared_ptr<SlabPool> slabs;
  std::shared_ptr<SinkPool> sinks;
  std::shared_ptr<ScratchPool> scratch;
  std::shared_ptr<BufferPool> fetched;
  std::shared_ptr<CarriedFetches> carried;
};

// Shared by the threads of a reader.
//
//   reading --a task or an opening fails--> failed: only what comes before the failure is
//      |                                      opened and run
//      |                                      |
//      +--no task is left--> threads end <----+--and none before it: the ring is closed
//
// Stop leads from any of these to the end: running tasks stop at their next batch.
struct ReaderState {
  ReaderState(ReaderSpec reader_spec, ReaderMemory offered);
  TaskContext context();
  // Fetches of all readers of the process since this one began.
  FetchStats Fetched() const;
  // Bytes that all readers of the data set took from its cache since this one began.
  int64_t BytesFromCache() const;

  const ReaderSpec spec;
  BatchMap batches;  // where it grows, by who claims
  const BatchLayout layout;
  const MemoryPlan memory;
  const std::shared_ptr<SlabPool> slabs;
  const std::shared_ptr<ScratchPool> scratch;
  const std::shared_ptr<RemoteBlocks> remote;  // null if no file is in a store
  const std::shared_ptr<ReaderFiles> files;
  const std::shared_ptr<BufferPool> fetched;
  const std::shared_ptr<CarriedFetches> carried;
  const FetchStats fetched_before;
  const int64_t cached_before;
  JaggedMemory jagged;
  BatchRing ring;

  // Set under mutex, so that no thread misses it before it waits; read without it
  // in the middle of a task, so in another cache line than what each task writes to.
  alignas(64) std::atomic<bool> stopping{false};

  alignas(64) std::mutex mutex;
  IdleThreads idle;                              // used under mutex
  const std::unique_ptr<Prefetcher> prefetcher;  // null if no file is in a store
  const std::unique_ptr<TaskStream> tasks;       // used under mutex
  std::deque<BatchMemory> lent;                  // guarded by mutex, as all below
  // Of a share of claims: the rows that it has so far, those of the latest one, and those
  // still to be passed over.
  int64_t claimed_rows = 0;
  int64_t latest_claim_rows = 0;
  int64_t unskipped_rows = spec.share.skipped_rows;
  bool failed = false;
  bool is_pressed = false;           // tasks wait for memory of variable length
  std::vector<CostSums> task_costs;  // by index
  // By Codec::Number. Only column chunks count, not columns that no file stores.
  std::map<int, CostSums> codec_costs;
  ConsumerWait consumer_wait;  // written by who is in Next, read under mutex
  RoomWaits room_waits{&consumer_wait};
  RoomWaits byte_waits{&consumer_wait};
  ThreadEnds thread_ends;
  LockTimes lock_times;
  int64_t num_waits = 0;
  int64_t num_alive = 0;          // threads that have not ended
  std::condition_variable ended;  // told when the last of them ends

  std::mutex lifecycle;              // starting and joining; taken before mutex
  std::vector<std::thread> threads;  // guarded by lifecycle
  bool started = false;              // guarded by lifecycle
  bool stopped = false;              // guarded by lifecycle
};

}  // namespace torchparquet
