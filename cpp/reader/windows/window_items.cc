#include "reader/windows/window_items.h"

#include <algorithm>
#include <cstring>
#include <utility>

namespace torchparquet {
namespace {

// Sinks of starts hold only int64, so all are aligned.
const int64_t* StartsIn(const SinkPool::Lease& lease) {
  return reinterpret_cast<const int64_t*>(lease->bytes().data());
}

template <typename Ranges>
int64_t TotalOf(const Ranges& ranges) {
  int64_t total = 0;
  for (const auto& range : ranges) total += range.end - range.begin;
  return total;
}

void AppendEnd(int64_t end, kernels::ByteSink* starts) {
  std::memcpy(starts->Extend(sizeof(end)), &end, sizeof(end));
}

}  // namespace

WindowItems::~WindowItems() { Clear(); }

void WindowItems::Clear() {
  for (StagedChunk& chunk : chunks_) {
    memory_->Release(chunk.num_bytes);
    chunk = {};
  }
}

void WindowItems::EndGather() {
  if (num_ungathered_.fetch_sub(1, std::memory_order_acq_rel) == 1) Clear();
}

Segment WindowItems::BeginRows(int64_t chunk, int64_t num_rows) {
  StagedChunk& staged = chunks_[static_cast<size_t>(chunk)];
  const auto num_starts = static_cast<size_t>(num_rows + 1);
  staged.row_starts =
      memory_->Acquire(static_cast<int64_t>(num_starts * sizeof(int64_t)));
  Segment segment{.values = staged.row_starts->Extend(num_starts * sizeof(int64_t)),
                  .num_rows = num_rows};
  if (place_.valid_offset >= 0) {
    staged.row_valid = memory_->Acquire(num_rows);
    segment.valid = staged.row_valid->Extend(static_cast<size_t>(num_rows));
  }
  return segment;
}

JaggedItems WindowItems::BeginItems(int64_t num_rows) const {
  return memory_->Begin(place_.first_jagged + element_, num_rows, place_.num_offsets,
                        place_.has_item_valid);
}

int64_t WindowItems::EndItems(int64_t chunk, JaggedItems items) {
  StagedChunk& staged = chunks_[static_cast<size_t>(chunk)];
  const auto num_starts =
      static_cast<int64_t>(staged.row_starts->size() / sizeof(int64_t));
  staged.row_starts->Truncate(static_cast<size_t>(num_starts - 1) * sizeof(int64_t));
  AppendEnd(items.num_items.front(), &*staged.row_starts);
  for (size_t level = 0; level < items.starts.size(); ++level) {
    AppendEnd(items.num_items[level + 1], &*items.starts[level]);
  }
  memory_->Learn(place_.first_jagged + element_, num_starts - 1, items);
  staged.num_bytes = items.num_bytes();
  staged.items = std::move(items);
  return staged.num_bytes;
}

// Writes row offsets and masks. Returns the items of each row at the first level.
std::vector<WindowItems::Range> WindowItems::GatherRows(const WindowPlaces& places,
                                                        size_t run_number,
                                                        uint8_t* slab) const {
  const BatchRun& run = places.runs()[run_number];
  std::vector<uint32_t> rows(static_cast<size_t>(run.num_rows));
  places.Rows(run_number, rows.data());
  // Fields are aligned to 64 bytes.
  auto* offset =
      reinterpret_cast<int64_t*>(slab + place_.OffsetOf(run.first_row, element_));
  uint8_t* valid = slab + place_.valid_offset + run.first_row;
  std::vector<Range> ranges;
  ranges.reserve(rows.size());
  int64_t num_items = 0;
  for (const uint32_t row : rows) {
    const WindowPlaces::ChunkRow from = places.ChunkOf(row);
    const StagedChunk& chunk = chunks_[from.chunk];
    const int64_t* starts = StartsIn(chunk.row_starts) + from.row;
    ranges.push_back({&chunk, starts[0], starts[1]});
    *offset++ = num_items;
    num_items += starts[1] - starts[0];
    if (place_.valid_offset >= 0) *valid++ = chunk.row_valid->bytes()[from.row];
  }
  return ranges;
}

// Replaces the ranges by those of the next level.
void WindowItems::GatherStarts(size_t level, std::span<Range> ranges, JaggedItems* to) {
  const auto num_bytes = static_cast<size_t>(TotalOf(ranges)) * sizeof(int64_t);
  auto* out = reinterpret_cast<int64_t*>(to->starts[level]->Extend(num_bytes));
  int64_t num_items = 0;
  for (Range& range : ranges) {
    const int64_t* starts = StartsIn(range.chunk->items->starts[level]);
    const int64_t first = starts[range.begin];
    for (int64_t i = range.begin; i < range.end; ++i) {
      *out++ = num_items + starts[i] - first;
    }
    range = {range.chunk, first, starts[range.end]};
    num_items += range.end - range.begin;
  }
}

void WindowItems::GatherValid(std::span<const Range> ranges, JaggedItems* to) {
  uint8_t* out = to->valid->Extend(static_cast<size_t>(TotalOf(ranges)));
  for (const Range& range : ranges) {
    const auto count = static_cast<size_t>(range.end - range.begin);
    if (count == 0) continue;
    std::memcpy(out, range.chunk->items->valid->bytes().data() + range.begin, count);
    out += count;
  }
}

void WindowItems::GatherValues(std::span<const Range> ranges, JaggedItems* to) {
  size_t value_bytes = 1;
  for (const Range& range : ranges) {
    // For strings, bytes are counted.
    if (range.begin == range.end) continue;
    const JaggedItems& items = *range.chunk->items;
    value_bytes = items.values->size() / static_cast<size_t>(items.num_items.back());
    break;
  }
  uint8_t* out = to->values->Extend(static_cast<size_t>(TotalOf(ranges)) * value_bytes);
  for (const Range& range : ranges) {
    const size_t num_bytes = static_cast<size_t>(range.end - range.begin) * value_bytes;
    if (num_bytes == 0) continue;
    const uint8_t* values = range.chunk->items->values->bytes().data();
    std::memcpy(out, values + static_cast<size_t>(range.begin) * value_bytes, num_bytes);
    out += num_bytes;
  }
}

JaggedPart WindowItems::Gather(const WindowPlaces& places, size_t run_number,
                               uint8_t* slab) const {
  const BatchRun& run = places.runs()[run_number];
  JaggedPart part{.first_row = run.first_row,
                  .num_rows = run.num_rows,
                  .items = BeginItems(run.num_rows)};
  JaggedItems* items = &part.items;
  std::vector<Range> ranges = GatherRows(places, run_number, slab);
  // A chunk of a file without this column does not know if it holds strings or a mask, so
  // all chunks are asked.
  const auto any = [&](bool JaggedItems::* fact) {
    return std::ranges::any_of(chunks_,
                               [&](const auto& chunk) { return (*chunk.items).*fact; });
  };
  const bool has_strings = any(&JaggedItems::has_strings);
  const bool has_valid = any(&JaggedItems::has_valid);
  for (size_t level = 0; level < items->num_items.size(); ++level) {
    items->num_items[level] = TotalOf(ranges);
    const bool is_last = level + 1 == items->num_items.size();
    // A mask has one entry per value, also if the last level counts bytes.
    const bool are_values = has_strings ? level + 2 == items->num_items.size() : is_last;
    if (has_valid && are_values) GatherValid(ranges, items);
    if (!is_last) GatherStarts(level, ranges, items);
  }
  GatherValues(ranges, items);
  memory_->Learn(place_.first_jagged + element_, run.num_rows, *items);
  return part;
}

}  // namespace torchparquet
