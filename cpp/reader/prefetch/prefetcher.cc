#include "reader/prefetch/prefetcher.h"

#include <algorithm>
#include <iterator>
#include <numeric>
#include <utility>

namespace torchparquet {
namespace {

// The part of its column chunk that comes before a block.
double PositionOf(const WantedBlock& block, const std::vector<ChunkBytes>& chunks) {
  const auto chunk =
      std::ranges::find(chunks, block.columns.front(), &ChunkBytes::column);
  return static_cast<double>(block.range.offset - chunk->range.offset) /
         static_cast<double>(chunk->range.num_bytes);
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
      held_(parts_.columns, parts_.budget_bytes,
            [this](const Place& place) {
              parts_.reads->Drop(*parts_.files->remote(place.first), place.second);
            }),
      steps_ahead_(parts_.files, parts_.reads, parts_.columns, parts_.next_steps),
      next_epoch_({.files = parts_.files,
                   .reads = parts_.reads,
                   .columns = parts_.columns,
                   // Blocks in the cache are near enough.
                   .carried = parts_.cached == nullptr ? parts_.carried : nullptr,
                   .memory = memory_,
                   .max_bytes = parts_.budget_bytes / 4,
                   .max_block_bytes = parts_.max_block_bytes}) {
  signal_->prefetcher = this;
  TakeCarried();
  parts_.reads->OnPassed([this](const RemoteObject& object, int64_t offset) {
    bool has_left = false;
    OrGiveUp([&] {
      has_left = held_.Passed({object.number, offset});
      CancelUnwanted();
    });
    if (has_left) Advance();
  });
}

// Work that ends halfway, for want of memory, may leave the books wrong. Nothing more is
// asked for then, and tasks wait for nothing: they read by themselves.
template <typename Work>
void Prefetcher::OrGiveUp(const Work& work) {
  try {
    work();
  } catch (...) {
    held_.Stop();
    parts_.on_ready();
    throw;
  }
}

// A call that finds another one under way only counts. The one under way ends when the
// count is what it was before the last look, so none is lost.
void Prefetcher::Advance() {
  if (num_asked_.fetch_add(1) > 0) return;
  try {
    OrGiveUp([&] {
      int64_t num_seen = 0;
      do {
        num_seen = num_asked_;
        AskForAll();
      } while (!num_asked_.compare_exchange_strong(num_seen, 0));
    });
  } catch (...) {
    num_asked_ = 0;  // later calls drop what is left
    throw;
  }
  if (is_awaited_.exchange(false) && !held_.is_stopped()) parts_.on_ready();
}

void Prefetcher::AskForAll() {
  may_advance_ = false;
  if (held_.is_stopped()) return DropAll();
  {
    const std::lock_guard announce_lock(announce_);
    next_epoch_.Announce(std::exchange(announced_, {}));
  }
  while (true) {
    if (!waiting_.empty()) {
      if (!held_.HasRoomFor(waiting_.front().wish())) return;
      const Waiting next = std::move(waiting_.front());
      waiting_.pop_front();
      Ask(next);
      continue;
    }
    if (held_.is_stopped()) return;
    const auto steps = steps_ahead_.Take();
    if (!steps) break;
    if (steps->empty()) return;
    std::ranges::move(Plan(*steps), std::back_inserter(waiting_));
    if (--carried_steps_ <= 0 && !carried_.empty()) DropCarried();
  }
  has_asked_for_all_ = true;
  next_epoch_.Advance([this](int64_t num_bytes) {
    return held_.HasRoomForNext(parts_.carried->num_bytes() + num_bytes);
  });
}

void Prefetcher::Announce(std::vector<std::vector<ReadStep>> steps) {
  {
    const std::lock_guard announce_lock(announce_);
    std::ranges::move(steps, std::back_inserter(announced_));
  }
  Advance();
}

// Takes the fetches that the reader before left here, by block.
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
    held_.AddCarried(fetch.range().num_bytes);
    for (const ByteRange& block : carried.blocks) {
      carried_[{object.number, block.offset}] = {carried.fetch, block};
    }
  }
}

// Gives up fetches that were left here and are not read first after all.
void Prefetcher::DropCarried() {
  std::set<std::shared_ptr<Fetch>> dropped;
  for (auto& [place, block] : std::exchange(carried_, {})) {
    dropped.insert(std::move(block.fetch));
  }
  for (const auto& fetch : dropped) {
    if (!fetch->is_over()) parts_.reads->fetcher().Cancel(fetch);
    held_.AddCarried(-fetch->range().num_bytes);
  }
}

// Gives up all that was left here or planned and is not asked for.
void Prefetcher::DropAll() {
  for (const Waiting& waiting : std::exchange(waiting_, {})) {
    if (waiting.carried != nullptr) parts_.reads->fetcher().Cancel(waiting.carried);
  }
  DropCarried();
}

// All blocks of a carried fetch, of one step, in one request.
Prefetcher::Waiting Prefetcher::Carried(int64_t file, std::shared_ptr<Fetch> fetch) {
  Waiting waiting{.file = file, .fetch = {fetch->range(), {}}, .carried = fetch};
  std::erase_if(carried_, [&](const auto& entry) {
    const auto& [place, block] = entry;
    if (block.fetch != fetch) return false;
    waiting.fetch.blocks.push_back({.range = block.range, .columns = {}});
    if (held_.IsWanted(place)) came_along_.insert(place);
    return true;
  });
  return waiting;
}

// All of a step in requests over neighbouring columns, if the budget has room for that.
std::vector<Prefetcher::Waiting> Prefetcher::Plan(const std::vector<ReadStep>& steps) {
  std::vector<PlannedStep> planned;
  int64_t num_bytes = 0;
  for (const ReadStep& step : steps) {
    if (!parts_.files->is_remote(step.file)) continue;
    auto chunks = steps_ahead_.Chunks(step);
    std::set<int64_t> in_parts;
    for (const ChunkBytes& chunk : chunks) {
      if (!chunk.parts.empty()) in_parts.insert(chunk.column);
    }
    auto blocks = held_.Want(step, CutBlocks(chunks, parts_.max_block_bytes), in_parts);
    num_bytes += SumBytes(blocks);
    planned.push_back({step, std::move(chunks), std::move(blocks)});
  }
  if (sizes_.first_bytes == 0 && num_bytes > 0) {
    sizes_ = RequestSizes::For(num_bytes, parts_.max_block_bytes);
  }
  std::vector<Waiting> waiting;
  if (num_bytes <= parts_.budget_bytes / 2) {
    for (PlannedStep& one : planned) {
      std::ranges::move(Requests(one.step.file, std::move(one.blocks)),
                        std::back_inserter(waiting));
    }
  } else {
    waiting = PlanBeyondBudget(std::move(planned));
  }
  for (Waiting& one : waiting) one.needed_bytes = num_bytes * parts_.num_lanes;
  return waiting;
}

// Several steps go column by column, as shuffle windows are read. A single step goes by
// position in its column chunks, as slices of large row groups are read.
std::vector<Prefetcher::Waiting> Prefetcher::PlanBeyondBudget(
    std::vector<PlannedStep> planned) {
  std::vector<Waiting> waiting;
  const auto add = [&](const PlannedStep& one, std::vector<WantedBlock> blocks) {
    std::ranges::move(Requests(one.step.file, std::move(blocks)),
                      std::back_inserter(waiting));
  };
  for (const PlannedStep& one : planned) held_.DropWhenPassed(one.step, one.blocks);
  if (planned.size() == 1) {
    PlannedStep& only = planned.front();
    std::ranges::sort(only.blocks, {}, [&](const WantedBlock& block) {
      return std::pair(PositionOf(block, only.chunks), block.range.offset);
    });
    for (WantedBlock& block : only.blocks) add(only, {std::move(block)});
    return waiting;
  }
  for (size_t column = 0; column < parts_.columns.size(); ++column) {
    for (PlannedStep& one : planned) {
      std::vector<WantedBlock> blocks;
      for (WantedBlock& block : one.blocks) {
        if (block.columns.empty()) continue;  // moved before
        if (block.columns.front() != static_cast<int64_t>(column)) continue;
        blocks.push_back(std::exchange(block, {}));
      }
      add(one, std::move(blocks));
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

void Prefetcher::Ask(const Waiting& waiting) {
  const bool is_carried = waiting.carried != nullptr;
  const auto fetch = is_carried
                         ? waiting.carried
                         : std::make_shared<Fetch>(parts_.files->remote(waiting.file),
                                                   waiting.fetch.range, memory_);
  const bool is_kept = parts_.cached != nullptr && !waiting.is_cached && !is_carried;
  const HeldBlocks::Begun begun =
      held_.Begin(waiting.file, waiting.fetch.blocks, waiting.wish(), fetch, is_kept);
  if (begun.request == nullptr) return;
  if (is_carried) parts_.reads->Adopt(fetch, begun.blocks);
  WhenOver(fetch, waiting.file, begun, is_kept);
  if (!is_carried) {
    parts_.reads->Hold(fetch, begun.blocks,
                       waiting.is_cached ? parts_.cached.get() : nullptr);
  }
  // Tasks may have read a block by themselves meanwhile.
  held_.DropUnwanted(waiting.file, begun.blocks);
}

void Prefetcher::WhenOver(const std::shared_ptr<Fetch>& fetch, int64_t file,
                          HeldBlocks::Begun begun, bool is_kept) {
  fetch->OnOver([signal = signal_, file, begun = std::move(begun), is_kept] {
    const std::lock_guard lock(signal->mutex);
    Prefetcher* const told = signal->prefetcher;
    if (told == nullptr) return;
    if (is_kept) told->KeepInCache(begun);
    told->held_.End(file, begun.blocks, begun.request.get());
    told->may_advance_ = true;
    told->parts_.on_ready();
  });
}

// Called with what came over the network, or failed to.
void Prefetcher::KeepInCache(const HeldBlocks::Begun& begun) {
  const auto fetch = begun.request->fetch.lock();
  const bool is_whole =
      fetch != nullptr && fetch->num_arrived() == fetch->range().num_bytes;
  if (!is_whole || fetch->object().identity.empty()) {
    return held_.Release(begun.request.get());
  }
  try {
    parts_.cached->Keep(fetch, begun.blocks, [signal = signal_, request = begun.request] {
      const std::lock_guard lock(signal->mutex);
      if (signal->prefetcher == nullptr) return;
      signal->prefetcher->held_.Release(request.get());
      signal->prefetcher->may_advance_ = true;
      signal->prefetcher->parts_.on_ready();
    });
  } catch (...) {
    // For want of memory. Blocks that are not kept are fetched again.
    held_.Release(begun.request.get());
  }
}

bool Prefetcher::IsFetched(const ReadStep& step, int64_t column) const {
  return parts_.files->is_remote(step.file) &&
         !parts_.columns[static_cast<size_t>(column)].paths.empty();
}

bool Prefetcher::IsAsking() {
  // Set before the look at the count: a call that ends after it sees this. If none is
  // under way, no end is awaited, or its end would wake threads that wait for bytes.
  is_awaited_ = true;
  if (num_asked_ > 0) return true;
  is_awaited_ = false;
  return false;
}

bool Prefetcher::IsReady(const ReadStep& step, int64_t column, bool others_run) const {
  return !IsFetched(step, column) || held_.IsReady(step, column, others_run);
}

void Prefetcher::Done(const ReadStep& step, int64_t column) {
  if (!IsFetched(step, column) || held_.is_stopped()) return;
  OrGiveUp([&] {
    held_.Done(step, column);
    CancelUnwanted();
  });
  Advance();
}

// Cancels fetches that are under way and wanted no more.
void Prefetcher::CancelUnwanted() {
  for (const auto& fetch : held_.TakeUnwanted()) {
    if (!fetch->is_over()) parts_.reads->fetcher().Cancel(fetch);
  }
}

void Prefetcher::Stop() {
  {
    const std::lock_guard lock(signal_->mutex);
    signal_->prefetcher = nullptr;
  }
  held_.Stop();
  parts_.reads->Stop();
  Advance();  // drops what is not asked for
}

PrefetchStats Prefetcher::stats() const {
  const HeldBlocks::Totals totals = held_.totals();
  return {.held_bytes = totals.held_bytes, .num_in_flight = totals.num_in_flight};
}

}  // namespace torchparquet
