#pragma once

#include <algorithm>
#include <atomic>
#include <compare>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <utility>
#include <vector>

#include "base/byte_range.h"
#include "remote/transport/cached_fetcher.h"
#include "remote/transport/fetcher.h"
#include "remote/transport/remote_object.h"

namespace torchparquet {

// A part of one column chunk. Its place depends on nothing but the column chunk, and on
// whether only parts of that are read. So a block that was kept fits any selection of
// columns.
struct WantedBlock {
  ByteRange range;
  std::vector<int64_t> columns;  // that are read from it
};

// Rows of one row group that are read together, by the first of them.
struct StepPlace {
  int64_t file = 0;
  int64_t row_group = 0;
  int64_t begin = 0;

  auto operator<=>(const StepPlace&) const = default;
};

// The bytes of remote files for one reader, or for one look at footers: one table of the
// blocks that are asked for ahead, and whatever else is read. Thread-safe.
//
// A block is a range of a file. The table has an entry for it while somebody holds it:
//
//   no entry --Want--> wanted --Begin--> in flight --End--> over
//      |                                     ^
//      +-----------Hold, Adopt---------------+
//
// Its holders are columns of planned steps, and pins. When the last of them lets go, the
// entry is removed: a fetch in flight is cancelled, and memory is freed.
//
// A column is what one task reads of one step. Its task looks at one flag, without the
// lock:
//
//   Open --> not ready --Want, and End of its last block--> ready --all rows read--> gone
//                |                                            ^
//                +--GiveUp: the task reads what is missing----+
class RemoteBlocks {
 public:
  // The part of the budget that requests hold, and whether it has become less.
  struct Totals {
    std::atomic<int64_t> held_bytes = 0;    // asked for and not dropped yet
    std::atomic<int64_t> cached_bytes = 0;  // of these, out of the cache on disk
    std::atomic<int64_t> num_in_flight = 0;
    std::atomic<bool> may_have_room = false;
  };

  // `cached` is null without a cache on disk.
  explicit RemoteBlocks(std::shared_ptr<Fetcher> fetcher,
                        std::shared_ptr<CachedFetcher> cached = nullptr)
      : fetcher_(std::move(fetcher)), cached_(std::move(cached)) {
    signal_->table = this;
  }
  ~RemoteBlocks() { Stop(); }
  RemoteBlocks(const RemoteBlocks&) = delete;
  RemoteBlocks& operator=(const RemoteBlocks&) = delete;

  // `on_change` is called after a fetch has ended, on the thread that ends it, and
  // `on_room` after a read has made room, on the thread that reads.
  void Listen(std::function<void()> on_change, std::function<void()> on_room);

  // kData: a block is passed once its last byte is read. kMetadata: footers and indexes,
  // which may be read together with the end of a block that is still to be read.
  enum class Reading { kData, kMetadata };
  // Reads exactly that range, out of blocks as far as they go. Waits for blocks that are
  // under way. Throws the Error of a fetch that failed, and Error(kStopped) once stopped.
  void Read(const std::shared_ptr<const RemoteObject>& object, const ByteRange& range,
            uint8_t* out, Reading reading = Reading::kData);
  // The bytes of a range that lies within one block, in place, with kPaddingBytes
  // after them. Waits and throws as Read does. Null if they are to be read: they lie in
  // no block or in several, the bytes after them are under way, or the block leaves the
  // budget once it is read. The request lives as long as the pointer.
  std::shared_ptr<const uint8_t> Borrow(int64_t file, const ByteRange& range);

  struct Place {       // of a block
    int64_t file = 0;  // the number of its object
    int64_t offset = 0;
    int64_t end = 0;

    auto operator<=>(const Place&) const = default;
  };

  struct Step;
  // The blocks of one column of a step.
  struct Column {
    // True if its task would not wait for bytes. Read without a lock.
    std::atomic<bool> is_there = false;
    // The table's lock guards all below.
    Step* step = nullptr;
    int64_t rows_left = 0;           // planned and not read; below 0: read before
    int64_t num_missing = 0;         // blocks that are not there yet
    std::vector<Place> blocks = {};  // in order
    bool drops_when_passed = false;
  };
  struct Step {
    StepPlace place;
    std::vector<Column> columns = {};
    int64_t num_uses = 0;  // handles, and columns with rows left
  };
  struct GiveBack {
    void operator()(Column* column) const noexcept { table->Return(column, num_rows); }

    RemoteBlocks* table = nullptr;
    int64_t num_rows = 0;
  };
  // The task of a column holds it until it has read its rows, or will not. Blocks that
  // nobody holds any more are dropped then, and the fetch of such blocks is cancelled.
  // Null for a file that is in no store.
  using Handle = std::unique_ptr<Column, GiveBack>;
  static bool IsReady(const Handle& handle) {
    return handle == nullptr || handle->is_there;
  }
  // Handles for so many rows of a step, by column. The table must outlive them.
  std::vector<Handle> Open(const StepPlace& place, size_t num_columns, int64_t num_rows);

  // Plans a step and returns the blocks to ask for. Blocks that are in the table are
  // used together. Of a column that another step of the row group holds, no others are
  // asked for, unless it is `in_parts`: steps read only some of its pages.
  std::vector<WantedBlock> Want(const StepPlace& place, int64_t num_rows,
                                std::vector<WantedBlock> blocks,
                                const std::vector<bool>& in_parts);
  // Column chunks of the step with several blocks leave the budget block by block.
  void DropWhenPassed(const StepPlace& place, const std::vector<WantedBlock>& blocks);
  // Begins a fetch of those of the blocks that are still wanted, if there are any.
  void Begin(std::shared_ptr<Fetch> fetch, const std::vector<WantedBlock>& blocks,
             bool is_cached);

  struct Unpin {
    void operator()(RemoteBlocks* table) const noexcept { table->ReleasePin(place); }

    Place place = {};
  };
  // Keeps a block in the table for no column.
  using Pin = std::unique_ptr<RemoteBlocks, Unpin>;
  // Begins a fetch of one block, beside the budget. Null once stopped.
  Pin Hold(const std::shared_ptr<const RemoteObject>& object, const ByteRange& range);
  // Takes over a fetch that was begun elsewhere, with its blocks.
  std::vector<Pin> Adopt(const std::shared_ptr<Fetch>& fetch,
                         std::vector<ByteRange> blocks);

  // No task waits for blocks any more: all read by themselves what is not there.
  void GiveUp();
  bool has_given_up() const { return has_given_up_; }
  // Ends all fetches, whose ends are told no more. Reads throw from now on. Idempotent.
  void Stop();

  Totals& totals() { return *totals_; }
  const std::shared_ptr<Fetcher>& fetcher() const { return fetcher_; }
  const std::shared_ptr<CachedFetcher>& cached() const { return cached_; }

 private:
  // A fetch, held by its blocks, by reads, and by the cache that keeps its bytes. The
  // last of them gives its bytes back, and ends a fetch that is still under way: without
  // the lock.
  struct Request {
    Request(std::shared_ptr<Fetch> its_fetch, const std::shared_ptr<Fetcher>& its_fetcher,
            std::shared_ptr<Totals> its_totals, std::vector<ByteRange> its_blocks);
    ~Request();
    Request(const Request&) = delete;
    Request& operator=(const Request&) = delete;

    const std::shared_ptr<Fetch> fetch;
    // Not shared: the last of them may be let go on a thread of the fetcher.
    const std::weak_ptr<Fetcher> fetcher;
    const std::shared_ptr<Totals> totals;  // null: does not count
    const std::vector<ByteRange> blocks;
    bool is_cached = false;  // comes out of the cache
    bool is_kept = false;    // goes there
    bool is_over = false;    // guarded by the table's lock
  };
  struct Block {
    bool is_over() const { return request != nullptr && request->is_over; }
    bool drops_when_passed() const {
      return !columns.empty() && std::ranges::all_of(columns, &Column::drops_when_passed);
    }

    std::vector<Column*> columns = {};  // that have not left it
    int64_t num_pins = 0;
    std::shared_ptr<Request> request = nullptr;  // null before it is asked for
  };
  // Lets fetches tell a table that may be gone: Stop sets `table` to null, under the
  // mutex, and fetches that end after that tell nobody.
  struct Signal {
    std::mutex mutex;
    RemoteBlocks* table = nullptr;
    std::function<void()> on_change;
  };
  using Blocks = std::map<Place, Block>;
  using Steps = std::map<StepPlace, Step>;

  void Return(Column* column, int64_t num_rows) noexcept;
  void ReleasePin(const Place& place) noexcept;
  void Pass(const Place& place, std::shared_ptr<Request> request);
  std::pair<Place, std::shared_ptr<Request>> Find(int64_t file, const ByteRange& wanted);
  void Await(const std::shared_ptr<Fetch>& fetch, int64_t num_bytes);
  std::shared_ptr<Fetch> Demand(const std::shared_ptr<const RemoteObject>& object,
                                const ByteRange& range);
  std::vector<Pin> PinAll(const std::shared_ptr<Request>& request, Fetcher* by);
  void Follow(const std::shared_ptr<Request>& request, Fetcher* by);
  void End(std::shared_ptr<Request> request);
  void Keep(const std::shared_ptr<Request>& request);

  // All are called under mutex_. The caller frees `dropped` without it.
  Step& StepAt(const StepPlace& place, size_t num_columns);
  static void AddRows(Column* column, int64_t num_rows);
  Blocks::iterator BlockAfter(int64_t file, int64_t offset);
  Blocks::iterator BlockAt(int64_t file, int64_t offset);  // end(): none holds it
  void Use(Column* column, Blocks::value_type* block);
  void Leave(Column* column, const Place& place, Blocks* dropped);
  void DropIfFree(Blocks::iterator block, Blocks* dropped);
  void Refresh(Column* column) const;
  bool IsHeldByOthers(const StepPlace& place, size_t column) const;

  const std::shared_ptr<Fetcher> fetcher_;
  const std::shared_ptr<CachedFetcher> cached_;
  const std::shared_ptr<Totals> totals_ = std::make_shared<Totals>();
  const std::shared_ptr<Signal> signal_ = std::make_shared<Signal>();
  std::function<void()> on_room_;
  std::atomic<bool> has_given_up_ = false;
  std::mutex mutex_;  // guards all below
  Steps steps_;
  Blocks blocks_;
  std::vector<std::shared_ptr<Fetch>> demanded_;
  bool is_stopped_ = false;
};

}  // namespace torchparquet
