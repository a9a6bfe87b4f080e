#pragma once

#include <atomic>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <set>
#include <utility>
#include <vector>

#include "base/buffer_pool.h"
#include "files/parquet_files.h"
#include "reader/prefetch/carried_fetches.h"
#include "reader/prefetch/fetch_plan.h"
#include "reader/prefetch/steps_ahead.h"
#include "remote/blocks/remote_blocks.h"

namespace torchparquet {

// Asks for the column chunks of files in stores, in the order in which they will be read,
// as far ahead as a budget of bytes goes. Without it a task's bytes are never wrong,
// only late. Thread-safe.
//
// A step of the plan, from the time that it is known:
//
//   upcoming ---------> waiting ----------> in flight ---------> let go
//   (StepsAhead)  Plan  (requests)   Begin  (RemoteBlocks)  End  (its tasks have read it)
//   its footer is       as soon as the      tasks that have
//   asked for           budget has room     their bytes are ready
//
// When no step of this reader is left, those that were announced for the next reader go
// the same way, but their fetches are carried over to it:
//
//   announced --> next_steps_ --PlanNext--> next_waiting_ --room--> CarriedFetches
class Prefetcher {
 public:
  struct Parts {
    std::shared_ptr<ReaderFiles> files;
    std::shared_ptr<RemoteBlocks> blocks;
    std::vector<StoredColumn> columns;  // by their number among tasks
    NextSteps next_steps;
    // Come from the reader before, and go to the one after.
    std::shared_ptr<CarriedFetches> carried;
    std::shared_ptr<BufferPool> memory;  // of what is fetched
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
  bool may_advance() const { return parts_.blocks->totals().may_have_room; }
  // True while a call of Advance is under way. Its end, or that of the next one, calls
  // `on_ready`, since tasks may wait for what it asks for.
  bool is_asking();
  // True if nothing is under way that would bring the bytes of a task: no call of Advance
  // and no fetch. Tasks that the budget had no room for then read by themselves, if no
  // other task runs, which may free room.
  bool is_idle();
  // Handles for the step's columns, by number; none for a file in no store. Call Advance
  // after they are destroyed.
  std::vector<RemoteBlocks::Handle> Open(const ReadStep& step);
  // True once nothing is left to ask for.
  bool has_asked_for_all() const { return has_asked_for_all_; }
  // Tells what the reader after this one will read first. Asks for that when nothing else
  // is left, up to a quarter of the budget. Advances.
  void Announce(std::vector<std::vector<ReadStep>> steps);
  // Ends all fetches, which call `on_ready` no more. Call it without locks.
  void Stop();

 private:
  // A request that is still to be made.
  struct Waiting {
    int64_t file = 0;
    PlannedFetch fetch;
    bool is_cached = false;
    int64_t needed_bytes = 0;  // that must be there at once for some task
    bool ends_step = false;    // of the next reader
  };

  void AskForAll();
  bool HasRoomFor(const Waiting& waiting) const;
  bool HasRoomFor(int64_t num_bytes) const;
  std::vector<Waiting> Plan(const std::vector<ReadStep>& steps);
  std::vector<Waiting> Requests(StepBlocks blocks);
  std::shared_ptr<Fetch> MakeFetch(const Waiting& waiting) const;
  void PlanNext(const std::vector<ReadStep>& steps);
  void AskForNext();
  void TakeCarried();

  const Parts parts_;
  std::mutex announce_;
  // Not looked at yet; guarded by announce_.
  std::vector<std::vector<ReadStep>> announced_;
  // A thread was told that a call is under way.
  std::atomic<bool> is_awaited_ = false;
  // Calls of Advance that are not answered yet; 0 if none is under way. The call that
  // makes it 1 goes on, and alone uses all below. It is no lock, as nobody waits for it.
  std::atomic<int64_t> num_asked_ = 0;
  std::deque<Waiting> waiting_;
  StepsAhead steps_ahead_;
  RequestSizes sizes_;
  // Blocks of fetches that the reader before has begun, until so many steps are planned.
  std::vector<RemoteBlocks::Pin> carried_;
  int64_t carried_bytes_ = 0;
  int64_t carried_steps_ = 0;
  // Of the next reader.
  std::deque<std::vector<ReadStep>> next_steps_;
  std::deque<Waiting> next_waiting_;
  std::set<std::pair<int64_t, int64_t>> next_planned_;  // blocks of files, by offset
  std::atomic<bool> has_asked_for_all_ = false;         // read by any thread
};

}  // namespace torchparquet
