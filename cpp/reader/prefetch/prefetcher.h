#pragma once

#include <atomic>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <utility>
#include <vector>

#include "base/buffer_pool.h"
#include "files/parquet_files.h"
#include "reader/prefetch/carried_fetches.h"
#include "reader/prefetch/fetch_plan.h"
#include "reader/prefetch/held_blocks.h"
#include "reader/prefetch/next_epoch.h"
#include "reader/prefetch/step_chunks.h"
#include "reader/prefetch/steps_ahead.h"
#include "remote/blocks/remote_reads.h"
#include "remote/transport/cached_fetcher.h"
#include "remote/transport/fetch.h"

namespace torchparquet {

struct PrefetchStats {
  int64_t held_bytes = 0;  // asked for and not dropped yet
  int64_t num_in_flight = 0;
};

// Asks for the column chunks of files in stores, in the order in which they will be read,
// as far ahead as a budget of bytes goes. Without it a task's bytes are never wrong,
// only late. Thread-safe.
class Prefetcher {
 public:
  struct Parts {
    std::shared_ptr<ReaderFiles> files;
    std::shared_ptr<RemoteReads> reads;
    std::shared_ptr<CachedFetcher> cached = nullptr;  // null without a cache on disk
    std::vector<StoredColumn> columns;                // by their number among tasks
    NextSteps next_steps;
    // Come from the reader before, and go to the one after. Null if there is none.
    std::shared_ptr<CarriedFetches> carried = nullptr;
    // Of what is fetched; null for memory of its own.
    std::shared_ptr<BufferPool> memory = nullptr;
    int64_t budget_bytes = 0;
    int64_t num_lanes = 1;  // whose steps are read side by side
    int64_t max_block_bytes = kMaxBlockBytes;
    // Called when tasks may have become ready or more can be asked for, on threads of the
    // fetcher and on those that call the prefetcher.
    std::function<void()> on_ready;
  };
  explicit Prefetcher(Parts parts);
  ~Prefetcher() { Stop(); }
  Prefetcher(const Prefetcher&) = delete;
  Prefetcher& operator=(const Prefetcher&) = delete;

  // Asks for what the budget has room for. May wait for footers. Returns at once if a
  // call is under way, on any thread: that one then looks again. Call it without locks.
  void Advance();
  // True if a call of Advance may find room that the last one did not.
  bool may_advance() const { return may_advance_; }
  // True while a call of Advance is under way. Its end is told by `on_ready`, since tasks
  // may wait for what it asks for.
  bool IsAsking();
  // True if a task would not wait for bytes. Also if nothing would ever make it ready:
  // what the budget had no room for is read by the task itself. `others_run` says that
  // other tasks are running, which may free room, or that the prefetcher is asking.
  bool IsReady(const ReadStep& step, int64_t column, bool others_run) const;
  // True once nothing is left to ask for.
  bool has_asked_for_all() const { return has_asked_for_all_; }
  // Tells what the reader after this one will read first. Asks for that when nothing else
  // is left, up to a quarter of the budget. Advances.
  void Announce(std::vector<std::vector<ReadStep>> steps);
  // A task has read its rows of a column, or will not. Advances. Call it without locks.
  void Done(const ReadStep& step, int64_t column);
  // Ends all fetches, which call `on_ready` no more. Call it without locks.
  void Stop();

  PrefetchStats stats() const;

 private:
  using Place = HeldBlocks::Place;

  // A request that is still to be made.
  struct Waiting {
    int64_t file = 0;
    PlannedFetch fetch;
    bool is_cached = false;
    std::shared_ptr<Fetch> carried = nullptr;  // begun by the reader before
    int64_t needed_bytes = 0;                  // that must be there at once for some task

    HeldBlocks::Wish wish() const {
      return {.num_bytes = fetch.range.num_bytes,
              .needed_bytes = needed_bytes,
              .is_cached = is_cached,
              .is_carried = carried != nullptr};
    }
  };
  struct PlannedStep {
    ReadStep step;
    std::vector<ChunkBytes> chunks;
    std::vector<WantedBlock> blocks;  // to be asked for
  };
  struct CarriedBlock {
    std::shared_ptr<Fetch> fetch;
    ByteRange range;
  };
  // Lets fetches tell a prefetcher that may be gone.
  struct Signal {
    std::mutex mutex;
    Prefetcher* prefetcher = nullptr;
  };

  bool IsFetched(const ReadStep& step, int64_t column) const;
  template <typename Work>
  void OrGiveUp(const Work& work);
  void AskForAll();
  std::vector<Waiting> Plan(const std::vector<ReadStep>& steps);
  std::vector<Waiting> PlanBeyondBudget(std::vector<PlannedStep> planned);
  std::vector<Waiting> Requests(int64_t file, std::vector<WantedBlock> blocks);
  void Ask(const Waiting& waiting);
  void WhenOver(const std::shared_ptr<Fetch>& fetch, int64_t file,
                HeldBlocks::Begun begun, bool is_kept);
  void KeepInCache(const HeldBlocks::Begun& begun);
  void TakeCarried();
  void DropCarried();
  void DropAll();
  Waiting Carried(int64_t file, std::shared_ptr<Fetch> fetch);
  void CancelUnwanted();

  const Parts parts_;
  const std::shared_ptr<BufferPool> memory_;
  const std::shared_ptr<Signal> signal_;
  HeldBlocks held_;

  std::mutex announce_;
  // Not looked at yet; guarded by announce_.
  std::vector<std::vector<ReadStep>> announced_;
  // A thread was told that a call is under way.
  std::atomic<bool> is_awaited_ = false;
  std::atomic<bool> may_advance_ = false;
  // Calls of Advance that are not answered yet; 0 if none is under way. The call that
  // makes it 1 goes on, and alone uses all below. It is no lock, as nobody waits for it.
  std::atomic<int64_t> num_asked_ = 0;
  std::deque<Waiting> waiting_;
  StepsAhead steps_ahead_;
  RequestSizes sizes_;
  std::map<Place, CarriedBlock> carried_;
  std::set<Place> came_along_;  // blocks to come that were asked for
  int64_t carried_steps_ = 0;
  NextEpoch next_epoch_;
  std::atomic<bool> has_asked_for_all_ = false;  // read without the lock
};

}  // namespace torchparquet
