#pragma once

#include <sys/types.h>

#include <chrono>
#include <cstdint>
#include <map>
#include <memory>
#include <vector>

#include "base/task_costs.h"
#include "batches/batch_ring.h"
#include "batches/layout.h"
#include "reader/plan/reader_spec.h"
#include "reader/reader_state.h"
#include "reader/waits.h"
#include "remote/transport/fetcher.h"

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
  LockTimes lock_times = {};                  // of all threads
  std::chrono::nanoseconds byte_waits{0};     // of all threads, for bytes of stores
  // Fetches of all readers of the process since this one began.
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
  // Up to `max_batches` batches of `num_rows` rows that Next would return at once.
  std::vector<BatchRing::TakeResult> NextReady(int64_t num_rows, int64_t max_batches);
  // True if Next would return a batch at once, rather than wait or throw.
  bool next_is_ready() const;
  // Lends the memory of one batch, of layout().slab_bytes bytes. It comes back as a
  // batch, with the token; what is never used is only forgotten.
  void Lend(uint8_t* data, int64_t token);
  // Ends the threads and forgets what is in flight. Waits for reads that are under way.
  // Idempotent.
  void Stop();
  // The same, but gives up after `timeout` and returns false: a disk may be stuck. The
  // threads then end as soon as it answers.
  bool StopWithin(std::chrono::milliseconds timeout);

  const BatchLayout& layout() const { return state_->layout; }
  int64_t num_batches() const { return state_->batches.num_batches(); }
  // Number of slabs that may be in flight: how many to lend at first.
  int64_t max_slabs() const { return state_->memory.max_slabs; }
  // Batches that were handed out; 0 in a forked child.
  int64_t num_taken() const;
  // Without the latest `num_unused` batches, of as many rows, that were handed out. All
  // zero in a forked child.
  ReaderStats stats(int64_t num_unused = 0) const;

  // True once all bytes of stores were asked for; false if no file is in a store.
  bool has_asked_for_all() const {
    return state_->prefetcher != nullptr && state_->prefetcher->has_asked_for_all();
  }
  // Tells what the reader that gets this one's memory will read first, so that it finds
  // that fetched. Once. May wait for footers.
  void Announce(const std::vector<Share>& shares);
  // Of a share of claims: true until what is claimed holds the next batch, and one row
  // group more to read meanwhile. While it is, Next must not be called.
  bool wants_claim() const;
  int64_t num_claims() const;
  // Adds the position that the rank has taken as this number; not again, if it was added.
  // After the last one, says that no more come, and whether a last batch that is not full
  // is left out. Both may wait for footers.
  void Claim(int64_t number, int64_t position);
  void EndClaims(bool drops_last = false);
  ReaderMemory memory() const {
    return {state_->slabs, state_->jagged.pool(), state_->scratch, state_->fetched,
            state_->carried};
  }

 private:
  void Start();
  void CountAlive(int64_t num_threads);
  void AskToStop();
  void Join();
  void CheckProcess() const;
  BatchRing::TakeResult Take(std::chrono::milliseconds timeout);
  void Count(const BatchRing::TakeResult& taken);
  std::vector<int64_t> DeliveredBytes(int64_t num_batches, int64_t num_rows) const;

  const pid_t owner_pid_;
  // A forked child does not destroy it: there, its locks and threads are in no known
  // state.
  std::unique_ptr<ReaderState> state_;
  // Counts of the batches handed out. Guarded by ReaderState::mutex.
  int64_t num_batches_ = 0;
  int64_t num_rows_ = 0;
  int64_t latest_rows_ = 0;           // of the latest batch
  std::vector<int64_t> items_bytes_;  // by column of variable length
  std::chrono::nanoseconds first_wait_{0};
};

}  // namespace torchparquet
