#pragma once

#include <atomic>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "buffer_pool.h"
#include "files/reader_files.h"
#include "network/fetch.h"
#include "prefetch/carried_fetches.h"
#include "prefetch/fetch_plan.h"
#include "prefetch/next_epoch.h"
#include "prefetch/step_chunks.h"
#include "sources/remote_reads.h"

namespace torchparquet {

struct PrefetchStats {
  int64_t budget_bytes = 0;
  int64_t held_bytes = 0;  // asked for and not dropped yet
  int64_t num_in_flight = 0;
};

// Asks for the column chunks of files in stores, in the order in which they will be read,
// as far ahead as a budget of bytes goes. What a task reads is never wrong without it,
// only late. Thread-safe.
class Prefetcher {
 public:
  // Steps that are read at once, column by column if there are several; nothing at the
  // end.
  using NextSteps = std::function<std::optional<std::vector<ReadStep>>()>;

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
    // Called on a thread of the fetcher when tasks may have become ready.
    std::function<void()> on_ready;
  };
  explicit Prefetcher(Parts parts);
  ~Prefetcher() { Stop(); }
  Prefetcher(const Prefetcher&) = delete;
  Prefetcher& operator=(const Prefetcher&) = delete;

  // Asks for what the budget has room for. May wait for footers. Call it without locks.
  void Advance();
  // True if a task would not wait for bytes. Also if nothing would ever make it ready:
  // what the budget had no room for is read by the task itself. `others_run` says that
  // other tasks, which may free room, are running.
  bool IsReady(const ReadStep& step, int64_t column, bool others_run);
  // True once nothing is left to ask for.
  bool has_asked_for_all() const { return has_asked_for_all_; }
  // Tells what the reader after this one will read first. Asks for that when nothing else
  // is left, up to a quarter of the budget. Advances.
  void Announce(std::vector<std::vector<ReadStep>> steps);
  // A task has read its rows of a column, or will not. Advances. Call it without locks.
  void Done(const ReadStep& step, int64_t column);
  // Ends all fetches. `on_ready` is not called any more. Call it without locks.
  void Stop();

  PrefetchStats stats() const;

 private:
  using Place = std::pair<int64_t, int64_t>;  // file, and row group or offset
  // File, row group, and the first of the rows that are read together.
  using GroupPlace = std::tuple<int64_t, int64_t, int64_t>;
  using User = std::pair<GroupPlace, int64_t>;  // a column of a group

  // What one request holds of the budget, until its last block is dropped.
  struct Request {
    int64_t num_bytes = 0;
    size_t num_holders = 0;  // blocks, and the cache while it keeps them
    bool is_cached = false;  // comes out of the cache
    std::weak_ptr<Fetch> fetch = {};
  };
  // What a request leaves in the cache.
  struct Keeping {
    std::shared_ptr<Request> request = nullptr;
    std::vector<ByteRange> blocks = {};
  };
  struct Block {
    std::vector<User> users;  // that have not left it
    std::shared_ptr<Request> request = nullptr;
    bool is_over = false;
  };
  struct Column {
    int64_t rows_left = 0;              // below 0: read before they were asked for
    int64_t num_unfinished = 0;         // blocks that are not there yet
    std::vector<int64_t> offsets = {};  // of its blocks, in order
    bool drops_when_passed = false;
  };
  struct Group {
    std::vector<Column> columns;
    bool is_planned = false;
  };
  // A request that is still to be made.
  struct Waiting {
    int64_t file = 0;
    PlannedFetch fetch;
    bool is_cached = false;
    std::shared_ptr<Fetch> carried = nullptr;  // begun by the reader before
    int64_t needed_bytes = 0;                  // that must be there at once for some task
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

  std::optional<std::vector<ReadStep>> TakeSteps();
  void AskForFooter(int64_t file);
  void DropFooter(int64_t file);
  void AskForIndexes(const ReadStep& step);
  void DropIndexes(const ReadStep& step);
  std::vector<Waiting> Plan(const std::vector<ReadStep>& steps);
  std::vector<WantedBlock> BlocksOf(const ReadStep& step,
                                    const std::vector<ChunkBytes>& chunks);
  void DropWhenPassed(const GroupPlace& place, const std::vector<WantedBlock>& blocks);
  bool MayAsk(const Waiting& waiting);
  void Ask(const Waiting& waiting);
  std::vector<Waiting> Requests(int64_t file, std::vector<WantedBlock> blocks);
  void Over(int64_t file, const std::vector<int64_t>& offsets);
  void TakeCarried();
  void DropCarried();
  Waiting Carried(int64_t file, std::shared_ptr<Fetch> fetch);
  void KeepInCache(const Keeping& kept);
  void Passed(int64_t file, int64_t offset);
  void CancelUnwanted();
  // Called under mutex_.
  void LetGo(Request* request);
  void Finish(Block* block);
  bool IsHeld(const ReadStep& step, int64_t column) const;
  void Use(const GroupPlace& place, int64_t column, int64_t offset, Block* block);
  void Leave(const Place& place, const User& user);
  Group& GroupAt(const GroupPlace& place);
  void EraseIfDone(const GroupPlace& place);

  const Parts parts_;
  const std::shared_ptr<BufferPool> memory_;
  const std::shared_ptr<Signal> signal_;

  std::mutex advance_;           // taken before mutex_; held while footers are read
  std::deque<Waiting> waiting_;  // guarded by advance_
  std::deque<std::vector<ReadStep>> upcoming_;  // guarded by advance_
  std::set<int64_t> footers_;                   // asked for; guarded by advance_
  std::map<Place, ByteRange> indexes_;          // asked for; guarded by advance_
  bool is_at_end_ = false;                      // guarded by advance_
  RequestSizes sizes_;                          // guarded by advance_
  std::map<Place, CarriedBlock> carried_;       // guarded by advance_
  std::set<Place> came_along_;  // blocks to come that were asked for; guarded by advance_
  int64_t carried_steps_ = 0;   // guarded by advance_
  NextEpoch next_epoch_;        // guarded by advance_
  std::atomic<bool> has_asked_for_all_ = false;

  mutable std::mutex mutex_;  // guards all below
  std::map<GroupPlace, Group> groups_;
  std::map<Place, Block> blocks_;
  std::vector<std::shared_ptr<Fetch>> unwanted_;
  int64_t held_bytes_ = 0;
  int64_t held_cached_bytes_ = 0;  // a part of them
  int64_t carried_bytes_ = 0;      // come from the reader before, not asked for yet
  int64_t num_in_flight_ = 0;
  bool stopped_ = false;
};

}  // namespace torchparquet
