#include "reader/reader_plan.h"

#include <algorithm>
#include <cmath>
#include <deque>
#include <string>
#include <utility>

#include "base/ceil_divide.h"
#include "base/errors.h"
#include "reader/memory_plan.h"
#include "reader/schedule/lane_walks.h"
#include "reader/windows/window_places.h"

namespace torchparquet {

namespace {

// Bytes of a row of one of the field's columns.
double LikelyRowBytes(const FieldSpec& field) {
  if (field.num_offsets > 0) return field.column_row_bytes() + sizeof(int64_t);
  return static_cast<double>(field.cell_items * field.item_bytes);
}

// Bytes of a row in the memory that a window's column is staged in, of the largest.
double LargestStagedRowBytes(const ReaderSpec& spec) {
  double largest = 0;
  for (const FieldSpec& field : spec.fields) {
    largest = std::max(largest, StagedRowBytes(field, spec.has_orders()).value_or(0));
  }
  return largest;
}

// Windows in flight, if there is room. Many threads have decoded one while the consumer
// still takes the batches of the one before: with two, they would wait for it.
int64_t NumWindows(const ReaderSpec& spec) { return spec.num_threads > 8 ? 4 : 2; }

// The most batches that one window touches, and that windows in flight touch.
WindowDemand MakeWindowDemand(const ReaderSpec& spec, const BatchLayout& layout,
                              const BatchMap& batches) {
  WindowDemand demand;
  int64_t max_rows = 0;
  int64_t least_chunks = spec.num_threads;
  const WorkSplit split = MakeWorkSplit(spec);
  for (int64_t lane = 0; lane < spec.num_lanes(); ++lane) {
    std::deque<int64_t> begins;  // of windows in flight
    for (WindowWalk walk(&spec.lane(lane), split, lane); walk.next(); walk.Advance()) {
      const ChunkWindow& next = *walk.next();
      // All rows are put in order, also where some are delivered.
      int64_t num_rows = 0;
      for (const Chunk& chunk : next.chunks) num_rows += chunk.rows.num_rows;
      max_rows = std::max(max_rows, num_rows);
      least_chunks = std::min<int64_t>(least_chunks, std::ssize(next.chunks));
      const BatchRange range = BatchesOf(batches, next);
      demand.window_batches = std::max(demand.window_batches, range.end - range.begin);
      begins.push_back(range.begin);
      demand.in_flight_batches =
          std::max(demand.in_flight_batches, range.end - begins.front());
      if (std::ssize(begins) == NumWindows(spec)) begins.pop_front();
    }
  }
  // A slot is a number of 32 bits, of which the last means none.
  if (demand.window_batches >= int64_t{1} << (32 - RowBits(layout))) {
    throw InvalidArgument("a shuffle window has too many batches to be numbered: ",
                          demand.window_batches, " of ", layout.capacity_rows, " rows");
  }
  demand.num_columns = CeilDivide(spec.num_threads, least_chunks);
  // Footers may claim more than there is memory; that is found when it is decoded.
  demand.column_bytes = static_cast<int64_t>(
      std::min(static_cast<double>(max_rows) * LargestStagedRowBytes(spec),
               static_cast<double>(spec.max_memory_bytes) / 4));
  return demand;
}

// True if a reader of a column walks headers to the page that a part begins in. In lists,
// it reads every page before, to find the rows.
bool SkipsByPage(const ColumnRequest& column) {
  if (column.list_length > 0) return false;
  if (column.num_offsets == 0 || column.is_scalar) return true;
  const auto is_bytes = [](const std::string& kind) {
    return kind == "string" || kind == "binary";
  };
  return column.num_offsets == 1 && column.vocabulary == nullptr &&
         std::ranges::all_of(column.kinds, is_bytes);
}

// Bytes of the bound that are left to what comes beside the slabs.
int64_t BytesBesideSlabs(const ReaderSpec& spec, const BatchLayout& layout,
                         const MemoryPlan& memory) {
  const int64_t batch_bytes = layout.slab_bytes + kBookkeepingBytes;
  return std::max<int64_t>(0, spec.max_memory_bytes - memory.max_slabs * batch_bytes);
}

}  // namespace

BatchMap MakeBatchMap(const ReaderSpec& spec) {
  if (spec.batch_rows == 0 && spec.claims() != nullptr) {
    return BatchMap::Growing(spec.share.order->size(), spec.max_chunk_rows);
  }
  if (spec.batch_rows > 0) return BatchMap::Lanes(spec.lane_rows, spec.batch_rows);
  std::vector<int64_t> batch_rows = spec.batch_sizes;
  if (batch_rows.empty()) {
    VisitChunks(spec.share,
                [&](const Chunk& chunk) { batch_rows.push_back(chunk.rows.num_rows); });
  }
  return BatchMap::PerChunk(batch_rows);
}

MemoryPlan MakeMemoryPlan(const ReaderSpec& spec, const BatchLayout& layout,
                          const BatchMap& batches) {
  // The likely items of rows make batches larger, but none impossible: footers may claim
  // more bytes than can be counted.
  double row_bytes = 0;
  for (const FieldSpec& field : spec.fields) row_bytes += field.row_bytes;
  const double batch_items_bytes = row_bytes * static_cast<double>(layout.capacity_rows);
  const int64_t room =
      std::max<int64_t>(spec.max_memory_bytes / 2 - layout.slab_bytes, 0);
  const int64_t items_bytes =
      std::min(static_cast<int64_t>(std::min(batch_items_bytes, 0x1p62)), room);
  if (spec.has_windows()) {
    WindowDemand demand = MakeWindowDemand(spec, layout, batches);
    demand.slab_bytes = layout.slab_bytes;
    demand.batch_bytes =
        layout.slab_bytes + items_bytes + layout.capacity_rows * WindowPlaces::kRowBytes;
    demand.max_memory_bytes = spec.max_memory_bytes;
    return PlanWindows(demand);
  }
  return PlanMemory({.slab_bytes = layout.slab_bytes + items_bytes,
                     .batch_rows = layout.capacity_rows,
                     .lane_rows = spec.num_lanes() == 1
                                      ? layout.capacity_rows
                                      : spec.batch_rows / spec.num_lanes(),
                     .max_chunk_rows = spec.max_chunk_rows,
                     .num_batches = batches.num_batches(),
                     .num_tasks = spec.num_tasks(),
                     .num_threads = spec.num_threads,
                     .max_memory_bytes = spec.max_memory_bytes});
}

WorkSplit MakeWorkSplit(const ReaderSpec& spec) {
  if (spec.num_threads == 1 || spec.files->have_keys()) return {};
  double all_bytes = 0;
  double most_bytes = 1;
  for (const ColumnSpec& column : spec.columns) {
    if (!column.file_bits.empty()) continue;
    if (!SkipsByPage(column.request)) return {};
    const double row_bytes =
        LikelyRowBytes(spec.fields[static_cast<size_t>(column.field)]);
    all_bytes += row_bytes;
    most_bytes = std::max(most_bytes, row_bytes);
  }
  // Two tasks of the largest column's size for each thread.
  const double num_columns = std::max(1.0, all_bytes / most_bytes);
  const double num_tasks = 2 * static_cast<double>(spec.num_threads);
  // At a border, a page is decompressed for each side of it, and a dictionary for each
  // part: parts are several times as long as usual pages, which have 1 MiB or 20,000
  // rows.
  constexpr double kLeastBytes = 4 << 20;
  constexpr int64_t kLeastRows = 60'000;
  return {
      .num_parts = static_cast<int64_t>(std::ceil(num_tasks / num_columns)),
      .least_rows = std::max(kLeastRows, static_cast<int64_t>(kLeastBytes / most_bytes))};
}

std::vector<double> RowBytes(const ReaderSpec& spec) {
  std::vector<double> row_bytes;
  for (const FieldSpec& field : spec.fields) {
    row_bytes.insert(row_bytes.end(), static_cast<size_t>(field.num_jagged()),
                     field.column_row_bytes());
  }
  return row_bytes;
}

int64_t MaxItemsBytes(const ReaderSpec& spec, const BatchLayout& layout,
                      const MemoryPlan& memory) {
  const int64_t rest = BytesBesideSlabs(spec, layout, memory);
  return rest - rest / 4;
}

int64_t MaxHeldBytes(const ReaderSpec& spec, const BatchLayout& layout,
                     const MemoryPlan& memory) {
  if (layout.jagged_fields.empty()) return memory.max_held_bytes;
  return std::min(memory.max_held_bytes, BytesBesideSlabs(spec, layout, memory) / 4);
}

}  // namespace torchparquet
