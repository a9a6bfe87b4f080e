#include "prefetch/prefetcher.h"

#include <algorithm>
#include <iterator>
#include <numeric>
#include <utility>

#include "errors.h"
#include "sources/remote_file.h"

namespace torchparquet {
namespace {

// A request of a few bytes counts for little of the budget, but it has a price.
constexpr int64_t kMaxInFlight = 1024;
// The cache on disk is near: what is read soon is asked for, in memory that was used. An
// epoch from the cache then takes 1.1 times as long as from a local file, instead of 1.3.
constexpr int64_t kCachedBytesAhead = int64_t{16} << 20;
constexpr size_t kStepsAhead = 32;
constexpr size_t kMaxFootersAhead = 64;

// The part of its column chunk that comes before a block.
double PositionOf(const WantedBlock& block, const std::vector<ChunkBytes>& chunks) {
  const auto chunk =
      std::ranges::find(chunks, block.columns.front(), &ChunkBytes::column);
  return static_cast<double>(block.range.offset - chunk->range.offset) /
         static_cast<double>(chunk->range.num_bytes);
}

std::tuple<int64_t, int64_t, int64_t> PlaceOf(const ReadStep& step) {
  return {step.file, step.row_group, step.begin};
}

int64_t SumBytes(const std::vector<WantedBlock>& blocks) {
  return std::accumulate(
      blocks.begin(), blocks.end(), int64_t{0},
      [](int64_t sum, const WantedBlock& block) { return sum + block.range.num_bytes; });
}

}  // namespace

Prefetcher::Prefetcher(Parts parts)
    : parts_(std::move(parts)),
      memory_(parts_.memory != nullptr
                  ? parts_.memory
                  : std::make_shared<BufferPool>(parts_.budget_bytes)),
      signal_(std::make_shared<Signal>()),
      next_epoch_({.files = parts_.files,
                   .reads = parts_.reads,
                   .columns = parts_.columns,
                   // What the cache has is near enough.
                   .carried = parts_.cached == nullptr ? parts_.carried : nullptr,
                   .memory = memory_,
                   .max_bytes = parts_.budget_bytes / 4,
                   .max_block_bytes = parts_.max_block_bytes}) {
  signal_->prefetcher = this;
  TakeCarried();
  parts_.reads->OnPassed([this](const RemoteObject& object, int64_t offset) {
    Passed(object.number, offset);
  });
}

void Prefetcher::Advance() {
  const std::lock_guard advance_lock(advance_);
  while (true) {
    if (!waiting_.empty()) {
      if (!MayAsk(waiting_.front())) return;
      const Waiting next = std::move(waiting_.front());
      waiting_.pop_front();
      Ask(next);
      continue;
    }
    {
      const std::lock_guard lock(mutex_);
      if (stopped_) return;
    }
    const auto steps = TakeSteps();
    if (!steps) break;
    std::ranges::move(Plan(*steps), std::back_inserter(waiting_));
    if (--carried_steps_ <= 0 && !carried_.empty()) DropCarried();
  }
  has_asked_for_all_ = true;
  next_epoch_.Advance([this](int64_t num_bytes) {
    const int64_t carried = parts_.carried->num_bytes();
    const std::lock_guard lock(mutex_);
    return !stopped_ && num_in_flight_ < kMaxInFlight &&
           held_bytes_ + carried + num_bytes <= parts_.budget_bytes;
  });
}

void Prefetcher::Announce(std::vector<std::vector<ReadStep>> steps) {
  {
    const std::lock_guard advance_lock(advance_);
    next_epoch_.Announce(std::move(steps));
  }
  Advance();
}

// What the reader before left here, by block.
void Prefetcher::TakeCarried() {
  if (parts_.carried == nullptr) return;
  const CarriedFetches::All all = parts_.carried->Take();
  carried_steps_ = all.num_steps;
  for (const CarriedFetches::Carried& carried : all.fetches) {
    const Fetch& fetch = *carried.fetch;
    const RemoteObject& object = fetch.object();
    const bool has_failed =
        fetch.is_over() && fetch.num_arrived() < fetch.range().num_bytes;
    if (has_failed || parts_.files->remote(object.number).get() != &object) {
      parts_.reads->fetcher().Cancel(carried.fetch);
      continue;
    }
    carried_bytes_ += fetch.range().num_bytes;
    for (const ByteRange& block : carried.blocks) {
      carried_[{object.number, block.offset}] = {carried.fetch, block};
    }
  }
}

// What was left here and is not read first after all.
void Prefetcher::DropCarried() {
  std::set<std::shared_ptr<Fetch>> dropped;
  for (auto& [place, block] : std::exchange(carried_, {})) {
    dropped.insert(std::move(block.fetch));
  }
  for (const auto& fetch : dropped) {
    if (!fetch->is_over()) parts_.reads->fetcher().Cancel(fetch);
    const std::lock_guard lock(mutex_);
    carried_bytes_ -= fetch->range().num_bytes;
  }
}

// All blocks of a carried fetch, of one step, in one request.
Prefetcher::Waiting Prefetcher::Carried(int64_t file, std::shared_ptr<Fetch> fetch) {
  Waiting waiting{.file = file, .fetch = {fetch->range(), {}}, .carried = fetch};
  const std::lock_guard lock(mutex_);
  std::erase_if(carried_, [&](const auto& entry) {
    const auto& [place, block] = entry;
    if (block.fetch != fetch) return false;
    waiting.fetch.blocks.push_back({.range = block.range, .columns = {}});
    if (blocks_.contains(place)) came_along_.insert(place);
    return true;
  });
  return waiting;
}

// Asks for the footers of steps to come, since each takes a round trip.
std::optional<std::vector<ReadStep>> Prefetcher::TakeSteps() {
  while (!is_at_end_ && upcoming_.size() < kStepsAhead &&
         footers_.size() < kMaxFootersAhead) {
    auto steps = parts_.next_steps();
    is_at_end_ = !steps;
    if (!steps) break;
    for (const ReadStep& step : *steps) {
      AskForFooter(step.file);
      if (parts_.files->has_footer(step.file)) AskForIndexes(step);
    }
    upcoming_.push_back(std::move(*steps));
  }
  if (upcoming_.empty()) {
    auto steps = is_at_end_ ? std::nullopt : parts_.next_steps();
    is_at_end_ = !steps;
    return steps;
  }
  auto next = std::move(upcoming_.front());
  upcoming_.pop_front();
  return next;
}

void Prefetcher::AskForFooter(int64_t file) {
  if (!parts_.files->is_remote(file) || parts_.files->has_footer(file)) return;
  const auto& object = parts_.files->remote(file);
  const ByteRange end = RemoteFile::FooterRange(*object);
  if (end.num_bytes == 0 || !footers_.insert(file).second) return;
  parts_.reads->Hold(std::make_shared<Fetch>(object, end), {end});
}

// Once the file is open, or was found to be none.
void Prefetcher::DropFooter(int64_t file) {
  if (footers_.erase(file) == 0) return;
  const auto& object = parts_.files->remote(file);
  parts_.reads->Drop(*object, RemoteFile::FooterRange(*object).offset);
}

// Of row groups of which only parts are read.
void Prefetcher::AskForIndexes(const ReadStep& step) {
  const Place place{step.file, step.row_group};
  if (!parts_.files->is_remote(step.file) || indexes_.contains(place)) return;
  const ByteRange range = IndexesOf(step, parts_.files.get(), parts_.columns);
  if (range.num_bytes == 0) return;
  indexes_[place] = range;
  parts_.reads->Hold(std::make_shared<Fetch>(parts_.files->remote(step.file), range),
                     {range});
}

void Prefetcher::DropIndexes(const ReadStep& step) {
  const auto found = indexes_.find({step.file, step.row_group});
  if (found == indexes_.end()) return;
  parts_.reads->Drop(*parts_.files->remote(step.file), found->second.offset);
  indexes_.erase(found);
}

// Registers the blocks of a step and returns those to ask for. Blocks that other steps
// hold are used together. Of a column that another step holds, no others are asked for,
// unless only parts of it are read.
std::vector<WantedBlock> Prefetcher::BlocksOf(const ReadStep& step,
                                              const std::vector<ChunkBytes>& chunks) {
  std::vector<WantedBlock> blocks = CutBlocks(chunks, parts_.max_block_bytes);
  std::set<int64_t> in_parts;
  for (const ChunkBytes& chunk : chunks) {
    if (!chunk.parts.empty()) in_parts.insert(chunk.column);
  }
  const std::lock_guard lock(mutex_);
  const GroupPlace place = PlaceOf(step);
  Group& group = GroupAt(place);
  group.is_planned = true;
  enum class Wants { kNothing, kHeld, kAll };
  std::vector<Wants> wants;
  for (size_t i = 0; i < group.columns.size(); ++i) {
    Column& column = group.columns[i];
    const auto number = static_cast<int64_t>(i);
    const bool has_blocks = column.rows_left > 0;
    const bool is_held = IsHeld(step, number) && !in_parts.contains(number);
    if (!parts_.columns[i].paths.empty()) column.rows_left += step.num_rows;
    wants.push_back(has_blocks || column.rows_left <= 0 ? Wants::kNothing
                    : is_held                           ? Wants::kHeld
                                                        : Wants::kAll);
  }
  std::erase_if(blocks, [&](WantedBlock& block) {
    const int64_t offset = block.range.offset;
    const auto found = blocks_.find({step.file, offset});
    std::erase_if(block.columns, [&](int64_t column) {
      const Wants wanted = wants[static_cast<size_t>(column)];
      if (found == blocks_.end()) return wanted != Wants::kAll;
      if (wanted != Wants::kNothing) Use(place, column, offset, &found->second);
      return true;
    });
    return block.columns.empty();
  });
  for (const WantedBlock& block : blocks) {
    Block& made = blocks_[{step.file, block.range.offset}];
    for (const int64_t column : block.columns) {
      Use(place, column, block.range.offset, &made);
    }
  }
  EraseIfDone(place);
  return blocks;
}

// True if a step with other rows of the row group wants the column.
bool Prefetcher::IsHeld(const ReadStep& step, int64_t column) const {
  const GroupPlace first{step.file, step.row_group, 0};
  const GroupPlace end{step.file, step.row_group + 1, 0};
  return std::any_of(groups_.lower_bound(first), groups_.lower_bound(end),
                     [&](const auto& entry) {
                       const auto& [place, group] = entry;
                       return place != PlaceOf(step) &&
                              group.columns[static_cast<size_t>(column)].rows_left > 0;
                     });
}

void Prefetcher::Use(const GroupPlace& place, int64_t column, int64_t offset,
                     Block* block) {
  Column& user = GroupAt(place).columns[static_cast<size_t>(column)];
  block->users.emplace_back(place, column);
  user.offsets.push_back(offset);
  if (!block->is_over) ++user.num_unfinished;
}

// All of a step in requests over neighbouring columns, if the budget has room for that.
// Otherwise several steps go column by column, as shuffle windows are read. A single step
// goes by position in its column chunks, as slices of large row groups are read.
std::vector<Prefetcher::Waiting> Prefetcher::Plan(const std::vector<ReadStep>& steps) {
  struct PlannedStep {
    int64_t file;
    GroupPlace place;
    std::vector<ChunkBytes> chunks;
    std::vector<WantedBlock> blocks;
  };
  std::vector<PlannedStep> planned;
  int64_t num_bytes = 0;
  for (const ReadStep& step : steps) {
    if (!parts_.files->is_remote(step.file)) continue;
    AskForIndexes(step);
    auto chunks = ChunksOf(step, parts_.files.get(), parts_.columns,
                           /*reads_indexes=*/true)
                      .value_or(std::vector<ChunkBytes>());
    DropIndexes(step);
    DropFooter(step.file);
    auto blocks = BlocksOf(step, chunks);
    num_bytes += SumBytes(blocks);
    planned.push_back({step.file, PlaceOf(step), std::move(chunks), std::move(blocks)});
  }
  const int64_t needed_bytes = num_bytes * parts_.num_lanes;
  if (sizes_.first_bytes == 0 && num_bytes > 0) {
    sizes_ = RequestSizes::For(num_bytes, parts_.max_block_bytes);
  }
  std::vector<Waiting> waiting;
  const auto add = [&](int64_t file, std::vector<WantedBlock> blocks) {
    for (Waiting& one : Requests(file, std::move(blocks))) {
      one.needed_bytes = needed_bytes;
      waiting.push_back(std::move(one));
    }
  };
  if (num_bytes <= parts_.budget_bytes / 2) {
    for (PlannedStep& step : planned) add(step.file, std::move(step.blocks));
    return waiting;
  }
  for (const PlannedStep& step : planned) DropWhenPassed(step.place, step.blocks);
  if (planned.size() == 1) {
    PlannedStep& step = planned.front();
    std::ranges::sort(step.blocks, {}, [&](const WantedBlock& block) {
      return std::pair(PositionOf(block, step.chunks), block.range.offset);
    });
    for (WantedBlock& block : step.blocks) add(step.file, {std::move(block)});
    return waiting;
  }
  for (size_t column = 0; column < parts_.columns.size(); ++column) {
    for (PlannedStep& step : planned) {
      std::vector<WantedBlock> blocks;
      for (WantedBlock& block : step.blocks) {
        if (block.columns.empty()) continue;  // moved before
        if (block.columns.front() != static_cast<int64_t>(column)) continue;
        blocks.push_back(std::exchange(block, {}));
      }
      add(step.file, std::move(blocks));
    }
  }
  return waiting;
}

// Blocks in the cache come one by one, others in requests over neighbours.
std::vector<Prefetcher::Waiting> Prefetcher::Requests(int64_t file,
                                                      std::vector<WantedBlock> blocks) {
  std::vector<Waiting> waiting;
  std::vector<WantedBlock> others;
  for (WantedBlock& block : blocks) {
    const Place place{file, block.range.offset};
    const auto carried = carried_.find(place);
    if (carried != carried_.end())
      waiting.push_back(Carried(file, carried->second.fetch));
    if (came_along_.erase(place) > 0) continue;
    const bool is_cached = parts_.cached != nullptr &&
                           parts_.cached->Has(*parts_.files->remote(file), block.range);
    if (!is_cached) {
      others.push_back(std::move(block));
      continue;
    }
    const ByteRange range = block.range;
    waiting.push_back({file, {range, {std::move(block)}}, true});
  }
  for (PlannedFetch& fetch : JoinBlocks(std::move(others), sizes_)) {
    waiting.push_back({file, std::move(fetch), false});
    ++sizes_.num_before;
  }
  return waiting;
}

// Column chunks that would fill much of the budget leave it block by block.
void Prefetcher::DropWhenPassed(const GroupPlace& place,
                                const std::vector<WantedBlock>& blocks) {
  const std::lock_guard lock(mutex_);
  const auto group = groups_.find(place);
  if (group == groups_.end()) return;
  for (const WantedBlock& block : blocks) {
    for (const int64_t number : block.columns) {
      Column& column = group->second.columns[static_cast<size_t>(number)];
      column.drops_when_passed = column.offsets.size() > 1;
    }
  }
}

bool Prefetcher::MayAsk(const Waiting& waiting) {
  const std::lock_guard lock(mutex_);
  if (stopped_ || num_in_flight_ >= kMaxInFlight) return false;
  if (waiting.carried != nullptr) return true;
  const int64_t cached_limit = std::max(kCachedBytesAhead, 2 * waiting.needed_bytes);
  if (waiting.is_cached && held_cached_bytes_ > cached_limit) return false;
  return held_bytes_ == 0 ||
         held_bytes_ + carried_bytes_ + waiting.fetch.range.num_bytes <=
             parts_.budget_bytes;
}

void Prefetcher::Ask(const Waiting& waiting) {
  const bool is_carried = waiting.carried != nullptr;
  const auto fetch = is_carried
                         ? waiting.carried
                         : std::make_shared<Fetch>(parts_.files->remote(waiting.file),
                                                   waiting.fetch.range, memory_);
  std::vector<ByteRange> ranges;
  std::vector<int64_t> offsets;
  Keeping kept;
  {
    const std::lock_guard lock(mutex_);
    if (is_carried) carried_bytes_ -= fetch->range().num_bytes;
    auto request = std::make_shared<Request>();
    for (const WantedBlock& block : waiting.fetch.blocks) {
      const auto found = blocks_.find({waiting.file, block.range.offset});
      if (found == blocks_.end()) continue;  // read by now
      found->second.request = request;
      ranges.push_back(block.range);
      offsets.push_back(block.range.offset);
    }
    if (ranges.empty()) return;
    *request = {.num_bytes = waiting.fetch.range.num_bytes,
                .num_holders = ranges.size(),
                .is_cached = waiting.is_cached,
                .fetch = fetch};
    held_bytes_ += request->num_bytes;
    if (request->is_cached) held_cached_bytes_ += request->num_bytes;
    ++num_in_flight_;
    if (parts_.cached != nullptr && !waiting.is_cached && !is_carried) {
      ++request->num_holders;
      kept = {std::move(request), ranges};
    }
  }
  const std::vector<int64_t> offsets_held = offsets;
  if (is_carried) parts_.reads->Adopt(fetch, ranges);
  fetch->OnOver([signal = signal_, file = waiting.file, offsets = std::move(offsets),
                 kept = std::move(kept)] {
    const std::lock_guard lock(signal->mutex);
    if (signal->prefetcher == nullptr) return;
    if (kept.request != nullptr) signal->prefetcher->KeepInCache(kept);
    signal->prefetcher->Over(file, offsets);
  });
  if (!is_carried) {
    parts_.reads->Hold(fetch, ranges, waiting.is_cached ? parts_.cached.get() : nullptr);
  }
  // Tasks may have read a block by themselves meanwhile.
  const std::lock_guard lock(mutex_);
  for (const int64_t offset : offsets_held) {
    if (!blocks_.contains({waiting.file, offset})) {
      parts_.reads->Drop(fetch->object(), offset);
    }
  }
}

void Prefetcher::Over(int64_t file, const std::vector<int64_t>& offsets) {
  {
    const std::lock_guard lock(mutex_);
    --num_in_flight_;
    for (const int64_t offset : offsets) {
      const auto found = blocks_.find({file, offset});
      if (found != blocks_.end()) Finish(&found->second);
    }
  }
  parts_.on_ready();
}

// Called with what came over the network, or failed to.
void Prefetcher::KeepInCache(const Keeping& kept) {
  const auto fetch = kept.request->fetch.lock();
  const bool is_whole =
      fetch != nullptr && fetch->num_arrived() == fetch->range().num_bytes;
  if (!is_whole || fetch->object().identity.empty()) {
    const std::lock_guard lock(mutex_);
    LetGo(kept.request.get());
    return;
  }
  parts_.cached->Keep(fetch, kept.blocks, [signal = signal_, request = kept.request] {
    const std::lock_guard lock(signal->mutex);
    if (signal->prefetcher == nullptr) return;
    {
      const std::lock_guard held_lock(signal->prefetcher->mutex_);
      signal->prefetcher->LetGo(request.get());
    }
    signal->prefetcher->parts_.on_ready();
  });
}

void Prefetcher::LetGo(Request* request) {
  if (--request->num_holders > 0) return;
  held_bytes_ -= request->num_bytes;
  if (request->is_cached) held_cached_bytes_ -= request->num_bytes;
  if (auto fetch = request->fetch.lock()) unwanted_.push_back(std::move(fetch));
}

void Prefetcher::Finish(Block* block) {
  if (std::exchange(block->is_over, true)) return;
  for (const auto& [place, column] : block->users) {
    --GroupAt(place).columns[static_cast<size_t>(column)].num_unfinished;
  }
}

bool Prefetcher::IsReady(const ReadStep& step, int64_t column, bool others_run) {
  if (!parts_.files->is_remote(step.file)) return true;
  if (parts_.columns[static_cast<size_t>(column)].paths.empty()) return true;
  const std::lock_guard lock(mutex_);
  const auto group = groups_.find(PlaceOf(step));
  if (group != groups_.end() && group->second.is_planned) {
    const Column& found = group->second.columns[static_cast<size_t>(column)];
    if (found.num_unfinished == 0) return true;
    if (found.drops_when_passed && !found.offsets.empty()) {
      const auto first = blocks_.find({step.file, found.offsets.front()});
      if (first != blocks_.end() && first->second.is_over) return true;
    }
  }
  return num_in_flight_ == 0 && !others_run;
}

void Prefetcher::Done(const ReadStep& step, int64_t column) {
  if (!parts_.files->is_remote(step.file)) return;
  if (parts_.columns[static_cast<size_t>(column)].paths.empty()) return;
  {
    const std::lock_guard lock(mutex_);
    if (stopped_) return;
    const GroupPlace place = PlaceOf(step);
    Column& found = GroupAt(place).columns[static_cast<size_t>(column)];
    found.rows_left -= step.num_rows;
    if (found.rows_left <= 0) {
      for (const int64_t offset : std::exchange(found.offsets, {})) {
        Leave({step.file, offset}, {place, column});
      }
      EraseIfDone(place);
    }
  }
  CancelUnwanted();
  Advance();
}

void Prefetcher::Passed(int64_t file, int64_t offset) {
  {
    const std::lock_guard lock(mutex_);
    const auto found = blocks_.find({file, offset});
    if (found == blocks_.end()) return;
    const std::vector<User> users = found->second.users;
    const auto column_of = [&](const User& user) -> Column& {
      return GroupAt(user.first).columns[static_cast<size_t>(user.second)];
    };
    const bool drops = std::ranges::all_of(
        users, [&](const User& user) { return column_of(user).drops_when_passed; });
    if (!drops) return;
    for (const User& user : users) {
      std::erase(column_of(user).offsets, offset);
      Leave({file, offset}, user);
    }
  }
  CancelUnwanted();
  Advance();
}

// What is under way and wanted no more.
void Prefetcher::CancelUnwanted() {
  std::vector<std::shared_ptr<Fetch>> unwanted;
  {
    const std::lock_guard lock(mutex_);
    unwanted = std::exchange(unwanted_, {});
  }
  for (const auto& fetch : unwanted) {
    if (!fetch->is_over()) parts_.reads->fetcher().Cancel(fetch);
  }
}

// A column of a group wants the block no more.
void Prefetcher::Leave(const Place& place, const User& user) {
  const auto found = blocks_.find(place);
  if (found == blocks_.end()) return;
  Block& block = found->second;
  const auto own = std::ranges::find(block.users, user);
  if (own == block.users.end()) return;
  block.users.erase(own);
  if (!block.is_over) {
    --GroupAt(user.first).columns[static_cast<size_t>(user.second)].num_unfinished;
  }
  if (!block.users.empty()) return;
  if (block.request != nullptr) LetGo(block.request.get());
  parts_.reads->Drop(*parts_.files->remote(place.first), place.second);
  blocks_.erase(found);
}

Prefetcher::Group& Prefetcher::GroupAt(const GroupPlace& place) {
  Group& group = groups_[place];
  group.columns.resize(parts_.columns.size());
  return group;
}

// A group whose rows were all read is forgotten.
void Prefetcher::EraseIfDone(const GroupPlace& place) {
  const auto found = groups_.find(place);
  const bool has_rows = std::ranges::any_of(
      found->second.columns, [](const Column& column) { return column.rows_left != 0; });
  if (!has_rows) groups_.erase(found);
}

void Prefetcher::Stop() {
  {
    const std::lock_guard lock(signal_->mutex);
    signal_->prefetcher = nullptr;
  }
  {
    const std::lock_guard lock(mutex_);
    stopped_ = true;
  }
  parts_.reads->Stop();
  const std::lock_guard advance_lock(advance_);
  for (const Waiting& waiting : std::exchange(waiting_, {})) {
    if (waiting.carried != nullptr) parts_.reads->fetcher().Cancel(waiting.carried);
  }
  DropCarried();
}

PrefetchStats Prefetcher::stats() const {
  const std::lock_guard lock(mutex_);
  return {.budget_bytes = parts_.budget_bytes,
          .held_bytes = held_bytes_,
          .num_in_flight = num_in_flight_};
}

}  // namespace torchparquet
