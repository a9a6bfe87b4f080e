#include "remote/blocks/remote_blocks.h"

#include <algorithm>
#include <cstring>
#include <limits>
#include <new>

#include "base/errors.h"

namespace torchparquet {
namespace {

RemoteBlocks::Place PlaceOf(int64_t file, const ByteRange& range) {
  return {file, range.offset, range.end()};
}

}  // namespace

RemoteBlocks::Request::Request(std::shared_ptr<Fetch> its_fetch,
                               const std::shared_ptr<Fetcher>& its_fetcher,
                               std::shared_ptr<Totals> its_totals,
                               std::vector<ByteRange> its_blocks)
    : fetch(std::move(its_fetch)),
      fetcher(its_fetcher),
      totals(std::move(its_totals)),
      blocks(std::move(its_blocks)) {
  if (totals == nullptr) return;
  totals->held_bytes += fetch->range().num_bytes;
  ++totals->num_in_flight;
}

// Nobody holds the request any more: its bytes leave the budget, and a fetch that is
// still under way is cancelled. This may be on any thread, also one of the fetcher.
RemoteBlocks::Request::~Request() {
  if (totals != nullptr) {
    totals->held_bytes -= fetch->range().num_bytes;
    if (is_cached) totals->cached_bytes -= fetch->range().num_bytes;
    totals->may_have_room = true;
    if (!is_over) --totals->num_in_flight;
  }
  if (fetch->is_over()) return;
  try {
    if (const auto by = fetcher.lock()) by->Cancel(fetch);
  } catch (const std::bad_alloc&) {  // NOLINT(bugprone-empty-catch)
    // Its bytes come in vain.
  }
}

void RemoteBlocks::Listen(std::function<void()> on_change,
                          std::function<void()> on_room) {
  const std::lock_guard lock(signal_->mutex);
  signal_->on_change = std::move(on_change);
  on_room_ = std::move(on_room);
}

void RemoteBlocks::Read(const std::shared_ptr<const RemoteObject>& object,
                        const ByteRange& range, uint8_t* out, Reading reading) {
  // A turn for each block that the range touches, and for each stretch between blocks.
  ByteRange rest = range;
  while (rest.num_bytes > 0) {
    auto [place, request] = Find(object->number, rest);
    const std::shared_ptr<Fetch> fetch =
        request != nullptr ? request->fetch
                           : Demand(object, {place.offset, place.end - place.offset});
    const int64_t end = std::min(rest.end(), place.end);
    const int64_t begin_in_fetch = rest.offset - fetch->range().offset;
    const int64_t num_bytes = end - rest.offset;
    Await(fetch, begin_in_fetch + num_bytes);
    std::memcpy(out, fetch->data() + begin_in_fetch, static_cast<size_t>(num_bytes));
    out += num_bytes;
    rest = {end, rest.end() - end};
    if (request == nullptr) {
      // Stop need not cancel it any more.
      const std::lock_guard lock(mutex_);
      std::erase(demanded_, fetch);
    } else if (reading == Reading::kData && end == place.end) {
      Pass(place, std::move(request));
    }
  }
}

std::shared_ptr<const uint8_t> RemoteBlocks::Borrow(int64_t file,
                                                    const ByteRange& range) {
  std::shared_ptr<Request> request;
  {
    const std::lock_guard lock(mutex_);
    const auto found = BlockAt(file, range.offset);
    if (found == blocks_.end() || range.end() > found->first.end) return nullptr;
    if (found->second.drops_when_passed()) return nullptr;
    request = found->second.request;
  }
  if (request == nullptr) return nullptr;
  const std::shared_ptr<Fetch>& fetch = request->fetch;
  const int64_t begin = range.offset - fetch->range().offset;
  const int64_t end = begin + range.num_bytes;
  Await(fetch, end);
  // After the last byte of the fetch, its memory has room.
  const int64_t padded_end = std::min(end + kPaddingBytes, fetch->range().num_bytes);
  if (fetch->num_arrived() < padded_end) return nullptr;
  const uint8_t* bytes = fetch->data() + begin;
  return {std::move(request), bytes};
}

void RemoteBlocks::Await(const std::shared_ptr<Fetch>& fetch, int64_t num_bytes) {
  // It goes before all that is asked for ahead.
  if (fetch->num_arrived() < num_bytes) fetcher_->Hurry(fetch);
  fetch->Await(num_bytes);
}

// The block that holds the offset, or the stretch before the next one without a request.
std::pair<RemoteBlocks::Place, std::shared_ptr<RemoteBlocks::Request>> RemoteBlocks::Find(
    int64_t file, const ByteRange& wanted) {
  const std::lock_guard lock(mutex_);
  const auto found = BlockAt(file, wanted.offset);
  if (found != blocks_.end() && found->second.request != nullptr) {
    return {found->first, found->second.request};
  }
  Place stretch = PlaceOf(file, wanted);
  auto after = BlockAfter(file, wanted.offset);
  for (; after != blocks_.end(); ++after) {
    if (after->first.file != file || after->first.offset >= stretch.end) break;
    if (after->second.request != nullptr) stretch.end = after->first.offset;
  }
  return {stretch, nullptr};
}

std::shared_ptr<Fetch> RemoteBlocks::Demand(
    const std::shared_ptr<const RemoteObject>& object, const ByteRange& range) {
  auto fetch = std::make_shared<Fetch>(object, range);
  // It is among `demanded_` before it starts: a Stop in between cancels it.
  {
    const std::lock_guard lock(mutex_);
    if (is_stopped_) throw ReaderClosed();
    demanded_.push_back(fetch);
  }
  fetcher_->Start(fetch);
  return fetch;
}

// The last byte of a block was read. It leaves the budget if all that hold it say so.
void RemoteBlocks::Pass(const Place& place, std::shared_ptr<Request> request) {
  {
    Blocks dropped;
    const std::lock_guard lock(mutex_);
    const auto found = blocks_.find(place);
    if (found == blocks_.end() || !found->second.drops_when_passed()) return;
    // A copy, since each column that leaves is erased from the block's own list.
    const std::vector<Column*> columns = found->second.columns;
    for (Column* column : columns) {
      std::erase(column->blocks, place);
      Leave(column, place, &dropped);
      Refresh(column);
    }
  }
  // The caller's share of the request is the last one: with it the bytes go.
  request.reset();
  if (on_room_) on_room_();
}

std::vector<RemoteBlocks::Handle> RemoteBlocks::Open(const StepPlace& place,
                                                     size_t num_columns,
                                                     int64_t num_rows) {
  std::vector<Handle> handles;
  handles.reserve(num_columns);
  const std::lock_guard lock(mutex_);
  // Tasks may open a step before it is planned, and plans may come before tasks.
  Step& step = StepAt(place, num_columns);
  for (Column& column : step.columns) {
    handles.push_back({&column, {.table = this, .num_rows = num_rows}});
  }
  step.num_uses += std::ssize(handles);
  return handles;
}

// A task gives its handle back. The column lets its blocks go once all rows of the step
// are read; the step goes with its last handle and its last row.
void RemoteBlocks::Return(Column* column, int64_t num_rows) noexcept {
  Blocks dropped;
  Steps::node_type ended;
  const std::lock_guard lock(mutex_);
  AddRows(column, -num_rows);
  // Below 0 if the rows were read before they were planned: Want then asks for nothing.
  if (column->rows_left <= 0) {
    for (const Place& place : std::exchange(column->blocks, {})) {
      Leave(column, place, &dropped);
    }
  }
  Refresh(column);
  if (--column->step->num_uses == 0) ended = steps_.extract(column->step->place);
}

std::vector<WantedBlock> RemoteBlocks::Want(const StepPlace& place, int64_t num_rows,
                                            std::vector<WantedBlock> blocks,
                                            const std::vector<bool>& in_parts) {
  const std::lock_guard lock(mutex_);
  Step& step = StepAt(place, in_parts.size());
  // kNothing: an earlier plan has the column's blocks, or its rows were read by now.
  // kHeld: another step of the row group has asked for the column, and this one shares
  // what is in the table. kAll: also blocks that are not in the table.
  enum class Wants { kNothing, kHeld, kAll };
  std::vector<Wants> wants;
  for (size_t i = 0; i < step.columns.size(); ++i) {
    Column& column = step.columns[i];
    const bool has_blocks = column.rows_left > 0;
    AddRows(&column, num_rows);
    wants.push_back(has_blocks || column.rows_left <= 0        ? Wants::kNothing
                    : !in_parts[i] && IsHeldByOthers(place, i) ? Wants::kHeld
                                                               : Wants::kAll);
  }
  // The blocks that are left are new in the table, and columns use them.
  std::erase_if(blocks, [&](WantedBlock& wanted) {
    auto found = blocks_.find(PlaceOf(place.file, wanted.range));
    const bool is_new = found == blocks_.end();
    std::erase_if(wanted.columns, [&](int64_t number) {
      const auto i = static_cast<size_t>(number);
      if (wants[i] == Wants::kNothing || (is_new && wants[i] == Wants::kHeld))
        return true;
      if (found == blocks_.end()) {
        found = blocks_.try_emplace(PlaceOf(place.file, wanted.range)).first;
      }
      Use(&step.columns[i], &*found);
      return false;
    });
    return !is_new || wanted.columns.empty();
  });
  for (Column& column : step.columns) Refresh(&column);
  if (step.num_uses == 0) steps_.erase(place);
  return blocks;
}

void RemoteBlocks::DropWhenPassed(const StepPlace& place,
                                  const std::vector<WantedBlock>& blocks) {
  const std::lock_guard lock(mutex_);
  const auto found = steps_.find(place);
  if (found == steps_.end()) return;
  for (const WantedBlock& block : blocks) {
    for (const int64_t number : block.columns) {
      Column& column = found->second.columns[static_cast<size_t>(number)];
      // A single block leaves with its handle, which is as soon.
      column.drops_when_passed = column.blocks.size() > 1;
      Refresh(&column);
    }
  }
}

void RemoteBlocks::Begin(std::shared_ptr<Fetch> fetch,
                         const std::vector<WantedBlock>& blocks, bool is_cached) {
  std::shared_ptr<Request> request;
  {
    const std::lock_guard lock(mutex_);
    std::vector<Block*> asked;
    std::vector<ByteRange> ranges;
    for (const WantedBlock& wanted : blocks) {
      const auto found = blocks_.find(PlaceOf(fetch->object().number, wanted.range));
      if (found == blocks_.end()) continue;  // read by now
      // Read by now, wanted again by another step, and asked for by that. It comes twice.
      if (found->second.request != nullptr) continue;
      asked.push_back(&found->second);
      ranges.push_back(wanted.range);
    }
    if (asked.empty()) return;
    request =
        std::make_shared<Request>(std::move(fetch), fetcher_, totals_, std::move(ranges));
    request->is_cached = is_cached;
    request->is_kept = cached_ != nullptr && !is_cached;
    if (is_cached) totals_->cached_bytes += request->fetch->range().num_bytes;
    for (Block* block : asked) block->request = request;
  }
  // Without the lock: a fetch may end at once, on this thread, and End takes it.
  Follow(request, is_cached ? cached_.get() : fetcher_.get());
}

RemoteBlocks::Pin RemoteBlocks::Hold(const std::shared_ptr<const RemoteObject>& object,
                                     const ByteRange& range) {
  const auto request = std::make_shared<Request>(std::make_shared<Fetch>(object, range),
                                                 fetcher_, nullptr, std::vector{range});
  std::vector<Pin> pins = PinAll(request, fetcher_.get());
  return pins.empty() ? Pin() : std::move(pins.front());
}

std::vector<RemoteBlocks::Pin> RemoteBlocks::Adopt(const std::shared_ptr<Fetch>& fetch,
                                                   std::vector<ByteRange> blocks) {
  return PinAll(std::make_shared<Request>(fetch, fetcher_, totals_, std::move(blocks)),
                nullptr);
}

std::vector<RemoteBlocks::Pin> RemoteBlocks::PinAll(
    const std::shared_ptr<Request>& request, Fetcher* by) {
  std::vector<Pin> pins;
  pins.reserve(request->blocks.size());
  bool is_wanted = false;
  {
    const std::lock_guard lock(mutex_);
    if (is_stopped_) return {};
    for (const ByteRange& range : request->blocks) {
      const Place place = PlaceOf(request->fetch->object().number, range);
      Block& block = blocks_[place];
      ++block.num_pins;
      pins.push_back({this, {.place = place}});
      // A block that was asked for already is pinned with that request.
      if (block.request != nullptr) continue;
      block.request = request;
      is_wanted = true;
    }
  }
  if (is_wanted) Follow(request, by);
  return pins;
}

// Begins the fetch, by `by` unless that is null, and tells of its end.
void RemoteBlocks::Follow(const std::shared_ptr<Request>& request, Fetcher* by) {
  try {
    // Weak: the fetch belongs to the request, which would otherwise keep itself.
    request->fetch->OnOver([signal = signal_, ended = std::weak_ptr(request)] {
      std::shared_ptr<Request> held = ended.lock();
      if (held == nullptr) return;  // nobody wants it
      const std::lock_guard lock(signal->mutex);
      if (signal->table != nullptr) signal->table->End(std::move(held));
    });
  } catch (...) {
    // Readers that find a block of it must not wait for it.
    request->fetch->Fail(CurrentErrorAt({}));
    throw;
  }
  if (by != nullptr) by->Start(request->fetch);
}

// A fetch is whole or has failed. In this order: columns become ready, the budget has
// room, and only then is the reader told, so that it finds both.
void RemoteBlocks::End(std::shared_ptr<Request> request) {
  {
    const std::lock_guard lock(mutex_);
    request->is_over = true;
    for (const ByteRange& range : request->blocks) {
      const auto found = blocks_.find(PlaceOf(request->fetch->object().number, range));
      // Dropped, wanted again by another step, and perhaps asked for again.
      if (found == blocks_.end() || found->second.request != request) continue;
      for (Column* column : found->second.columns) {
        --column->num_missing;
        Refresh(column);
      }
    }
    // After the columns, and after the room: where nothing is in flight, all know it.
    if (request->totals != nullptr) {
      totals_->may_have_room = true;
      --totals_->num_in_flight;
    }
  }
  Keep(request);
  request.reset();  // there is room before anybody is told
  if (signal_->on_change) signal_->on_change();
}

// Keeps what came over the network in the cache.
void RemoteBlocks::Keep(const std::shared_ptr<Request>& request) {
  const std::shared_ptr<Fetch>& fetch = request->fetch;
  const bool is_whole = fetch->num_arrived() == fetch->range().num_bytes;
  if (!request->is_kept || !is_whole || fetch->object().identity.empty()) return;
  try {
    cached_->Keep(fetch, request->blocks, [signal = signal_, held = request]() mutable {
      held.reset();
      const std::lock_guard lock(signal->mutex);
      if (signal->table != nullptr) signal->on_change();
    });
  } catch (const std::bad_alloc&) {  // NOLINT(bugprone-empty-catch)
    // Blocks that are not kept are fetched again.
  }
}

// After an error of the plan: tasks that wait for blocks nobody asks for would wait for
// ever, so all are called ready, and read what is missing.
void RemoteBlocks::GiveUp() {
  const std::lock_guard lock(mutex_);
  has_given_up_ = true;
  for (auto& [place, step] : steps_) {
    for (Column& column : step.columns) column.is_there = true;
  }
}

// In this order: fetches that end tell nobody any more, no task waits for blocks, no
// read begins a fetch, and what is under way is cancelled, so reads that wait end.
void RemoteBlocks::Stop() {
  {
    const std::lock_guard lock(signal_->mutex);
    signal_->table = nullptr;
  }
  GiveUp();
  std::vector<std::shared_ptr<Fetch>> demanded;
  Blocks held;
  {
    const std::lock_guard lock(mutex_);
    is_stopped_ = true;
    demanded.swap(demanded_);
    held.swap(blocks_);
  }
  const auto cancel = [&](const std::shared_ptr<Fetch>& fetch) {
    if (!fetch->is_over()) fetcher_->Cancel(fetch);
  };
  std::ranges::for_each(demanded, cancel);
  for (const auto& [place, block] : held) {
    if (block.request != nullptr) cancel(block.request->fetch);
  }
}

RemoteBlocks::Step& RemoteBlocks::StepAt(const StepPlace& place, size_t num_columns) {
  const auto [found, is_new] = steps_.try_emplace(place);
  Step& step = found->second;
  if (!is_new) return step;
  try {
    step.columns = std::vector<Column>(num_columns);
  } catch (...) {
    steps_.erase(found);
    throw;
  }
  step.place = place;
  for (Column& column : step.columns) {
    column.step = &step;
    column.is_there = has_given_up_.load();
  }
  return step;
}

// Refresh the column once it uses or has left the blocks of those rows.
void RemoteBlocks::AddRows(Column* column, int64_t num_rows) {
  const bool had_rows = column->rows_left != 0;
  column->rows_left += num_rows;
  column->step->num_uses += int{column->rows_left != 0} - int{had_rows};
}

// The first block that begins after the offset.
RemoteBlocks::Blocks::iterator RemoteBlocks::BlockAfter(int64_t file, int64_t offset) {
  return blocks_.upper_bound({file, offset, std::numeric_limits<int64_t>::max()});
}

RemoteBlocks::Blocks::iterator RemoteBlocks::BlockAt(int64_t file, int64_t offset) {
  const auto after = BlockAfter(file, offset);
  if (after == blocks_.begin()) return blocks_.end();
  const auto found = std::prev(after);
  const bool holds = found->first.file == file && offset < found->first.end;
  return holds ? found : blocks_.end();
}

void RemoteBlocks::Use(Column* column, Blocks::value_type* block) {
  // In this order, as a block must list no column that does not leave it.
  column->blocks.push_back(block->first);
  block->second.columns.push_back(column);
  if (!block->second.is_over()) ++column->num_missing;
}

// A column wants the block no more.
void RemoteBlocks::Leave(Column* column, const Place& place, Blocks* dropped) {
  const auto found = blocks_.find(place);
  if (found == blocks_.end() || std::erase(found->second.columns, column) == 0) return;
  if (!found->second.is_over()) --column->num_missing;
  DropIfFree(found, dropped);
}

void RemoteBlocks::ReleasePin(const Place& place) noexcept {
  Blocks dropped;
  const std::lock_guard lock(mutex_);
  const auto found = blocks_.find(place);
  if (found == blocks_.end()) return;
  --found->second.num_pins;
  DropIfFree(found, &dropped);
}

void RemoteBlocks::DropIfFree(Blocks::iterator block, Blocks* dropped) {
  if (!block->second.columns.empty() || block->second.num_pins > 0) return;
  dropped->insert(blocks_.extract(block));
}

// A task would not wait if all of its column's blocks are there; or the first of them, if
// blocks leave the budget one by one, since the budget may not have room for all.
void RemoteBlocks::Refresh(Column* column) const {
  const auto has_first = [&] {
    if (!column->drops_when_passed || column->blocks.empty()) return false;
    const auto first = blocks_.find(column->blocks.front());
    return first != blocks_.end() && first->second.is_over();
  };
  column->is_there = has_given_up_ ||
                     (column->rows_left > 0 && (column->num_missing == 0 || has_first()));
}

// True if a step with other rows of the row group wants the column.
bool RemoteBlocks::IsHeldByOthers(const StepPlace& place, size_t column) const {
  return std::any_of(
      steps_.lower_bound({place.file, place.row_group, 0}),
      steps_.lower_bound({place.file, place.row_group + 1, 0}), [&](const auto& entry) {
        return entry.first != place && entry.second.columns[column].rows_left > 0;
      });
}

}  // namespace torchparquet
