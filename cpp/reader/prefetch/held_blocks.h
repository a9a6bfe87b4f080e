#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <tuple>
#include <utility>
#include <vector>

#include "base/byte_range.h"
#include "reader/prefetch/fetch_plan.h"
#include "reader/prefetch/step_chunks.h"
#include "remote/transport/fetch.h"

namespace torchparquet {

// The blocks that steps want, the columns that wait for them, and what their requests
// hold of the budget. Thread-safe.
class HeldBlocks {
 public:
  using Place = std::pair<int64_t, int64_t>;  // file and offset

  // The bytes of the budget that one request holds until its last block is dropped.
  struct Request {
    int64_t num_bytes = 0;
    size_t num_holders = 0;  // blocks, and the cache while it keeps them
    bool is_cached = false;  // comes out of the cache
    std::weak_ptr<Fetch> fetch = {};
  };
  // A request that may be made.
  struct Wish {
    int64_t num_bytes = 0;
    int64_t needed_bytes = 0;  // that must be there at once for some task
    bool is_cached = false;
    bool is_carried = false;  // was made by the reader before
  };
  struct Begun {
    std::shared_ptr<Request> request = nullptr;  // null if no block is wanted any more
    std::vector<ByteRange> blocks = {};          // that are
  };
  struct Totals {
    int64_t held_bytes = 0;  // asked for and not dropped yet
    int64_t num_in_flight = 0;
  };

  // Calls `drop` under a lock of its own for each block that nobody wants any more.
  HeldBlocks(std::vector<StoredColumn> columns, int64_t budget_bytes,
             std::function<void(const Place&)> drop);

  // Registers the blocks of a step and returns those to ask for. Blocks that other steps
  // hold are used together. Of a column that another step holds, no others are asked for,
  // unless it is among `in_parts`: only parts of that are read.
  std::vector<WantedBlock> Want(const ReadStep& step, std::vector<WantedBlock> blocks,
                                const std::set<int64_t>& in_parts);
  // Column chunks of the step with several blocks leave the budget block by block.
  void DropWhenPassed(const ReadStep& step, const std::vector<WantedBlock>& blocks);
  bool IsWanted(const Place& place) const;

  bool HasRoomFor(const Wish& wish) const;
  // True if what the next reader reads first may hold that much.
  bool HasRoomForNext(int64_t num_bytes) const;
  // The request counts from now on. `for_cache` says that the cache holds it too.
  Begun Begin(int64_t file, const std::vector<WantedBlock>& blocks, const Wish& wish,
              const std::shared_ptr<Fetch>& fetch, bool for_cache);
  // Drops those of the blocks that nobody wants any more.
  void DropUnwanted(int64_t file, const std::vector<ByteRange>& blocks);
  // The fetch of these blocks is over, for which `request` was made.
  void End(int64_t file, const std::vector<ByteRange>& blocks, const Request* request);
  // The cache has what it keeps of the request.
  void Release(Request* request);
  // Bytes that came from the reader before and are not asked for yet.
  void AddCarried(int64_t num_bytes);

  // True if the column's task would not wait for bytes, or if nothing would make it
  // ready.
  bool IsReady(const ReadStep& step, int64_t column, bool others_run) const;
  // A task has read its rows of a column, or will not.
  void Done(const ReadStep& step, int64_t column);
  // The last byte of a block was read. Returns true if it has left the budget.
  bool Passed(const Place& place);
  // Fetches under way whose bytes nobody wants any more.
  std::vector<std::shared_ptr<Fetch>> TakeUnwanted();

  // There is no room for anything from now on, and no task waits any more.
  void Stop();
  bool is_stopped() const;
  Totals totals() const;

 private:
  // File, row group, and the first of the rows that are read together.
  using StepPlace = std::tuple<int64_t, int64_t, int64_t>;
  using User = std::pair<StepPlace, int64_t>;  // a column of a step

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
  struct Step {
    std::vector<Column> columns;
    bool is_planned = false;
  };

  // All are called under mutex_.
  static StepPlace PlaceOf(const ReadStep& step);
  bool IsHeldByOthers(const ReadStep& step, int64_t column) const;
  void Use(const User& user, int64_t offset, Block* block);
  void Leave(const Place& place, const User& user);
  void LetGo(Request* request);
  Step& StepAt(const StepPlace& place);
  Column& ColumnOf(const User& user);
  void EraseIfDone(const StepPlace& place);

  const std::vector<StoredColumn> columns_;
  const int64_t budget_bytes_;
  const std::function<void(const Place&)> drop_;

  mutable std::mutex mutex_;  // guards all below
  std::map<StepPlace, Step> steps_;
  std::map<Place, Block> blocks_;
  std::vector<std::shared_ptr<Fetch>> unwanted_;
  int64_t held_bytes_ = 0;
  int64_t held_cached_bytes_ = 0;  // a part of them
  int64_t carried_bytes_ = 0;
  int64_t num_in_flight_ = 0;
  bool is_stopped_ = false;
};

}  // namespace torchparquet
