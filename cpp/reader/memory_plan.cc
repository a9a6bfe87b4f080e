#include "reader/memory_plan.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <string>

#include "base/ceil_divide.h"
#include "base/errors.h"
#include "reader/windows/window_cells.h"
#include "reader/windows/window_places.h"

namespace torchparquet {
namespace {

// A chunk is cut only if it holds more than this. A thread that reads one column of a
// whole chunk keeps one dictionary and one page in its cache. Over slices it fetches
// those of every column again for each slice. On the click log of bench/, slices of 18 MB
// cost 90 to 160 ms of the 400 ms of processor time of a pass. The values then stay in
// the shared cache until they are read, which does not make up for it.
constexpr int64_t kMaxSliceBytes = int64_t{128} << 20;

// Batches kept in flight even where slices are small, so that a consumer that pauses
// for a moment does not stop the threads.
constexpr int64_t kMinInFlightBytes = int64_t{32} << 20;

// The part of the bound that is left to what column readers keep between two slices.
constexpr int64_t kHeldShare = 4;

// In floating point: footers may claim rows of more bytes than can be counted.
double Aligned(int64_t num_rows, int64_t row_bytes) {
  constexpr auto kAlignment = static_cast<double>(BatchLayout::kFieldAlignment);
  const double num_bytes = static_cast<double>(num_rows) * static_cast<double>(row_bytes);
  return std::ceil(num_bytes / kAlignment) * kAlignment;
}

// Of the columns that take most, one entry each.
double MostStagedRowBytes(const std::vector<FieldSpec>& fields, bool has_orders) {
  std::vector<double> staged;
  for (const FieldSpec& field : fields) {
    const std::optional<double> row_bytes = StagedRowBytes(field, has_orders);
    if (!row_bytes) continue;
    const int64_t num_columns = std::min(field.width, kLeastStagedColumns);
    staged.insert(staged.end(), static_cast<size_t>(num_columns), *row_bytes);
  }
  std::ranges::sort(staged, std::greater());
  staged.resize(static_cast<size_t>(kLeastStagedColumns));
  double sum = 0;
  for (const double row_bytes : staged) sum += row_bytes;
  return sum;
}

}  // namespace

// Of `max_memory`, a quarter is for what column readers keep between two slices, the rest
// for batches:
//
//   slices in flight = threads / tasks of a slice, rounded up, + 2
//   batches a slice  = (batches in three quarters of the bound - 1) / slices in flight
//                      at most those of a chunk and of kMaxSliceBytes, at least 1
//   slabs            = slices in flight * batches a slice + 1
//                      at least those of kMinInFlightBytes, at most those that fit
MemoryPlan PlanMemory(const MemoryDemand& demand) {
  const int64_t affordable_slabs = demand.max_memory_bytes / demand.slab_bytes;
  if (affordable_slabs < 2) {
    throw InvalidArgument("max_memory must hold at least two batches, ",
                          2 * demand.slab_bytes, " bytes for batches of ",
                          demand.batch_rows, " rows: ", demand.max_memory_bytes,
                          " bytes");
  }
  const int64_t batch_bytes = demand.slab_bytes + kBookkeepingBytes;
  const int64_t batches_for_slabs = std::max<int64_t>(
      2, (demand.max_memory_bytes - demand.max_memory_bytes / kHeldShare) / batch_bytes);
  // Every thread needs a task of its own, the consumer a slice to take from, and the
  // threads the next one to go on with.
  const int64_t slices_in_flight = CeilDivide(demand.num_threads, demand.num_tasks) + 2;
  const int64_t lane_rows = demand.lane_rows > 0 ? demand.lane_rows : demand.batch_rows;
  const int64_t chunk_slabs = CeilDivide(demand.max_chunk_rows, lane_rows);
  const int64_t slabs_per_slice =
      std::max<int64_t>(1, std::min({(batches_for_slabs - 1) / slices_in_flight,
                                     kMaxSliceBytes / demand.slab_bytes, chunk_slabs}));
  // A slice that begins within a batch touches one batch more, which is open already.
  const int64_t wanted_slabs = std::max(slices_in_flight * slabs_per_slice + 1,
                                        CeilDivide(kMinInFlightBytes, batch_bytes));
  MemoryPlan plan;
  plan.max_slabs =
      std::max<int64_t>(2, std::min({wanted_slabs, batches_for_slabs,
                                     std::max<int64_t>(demand.num_batches, 2)}));
  plan.max_slice_rows = slabs_per_slice * lane_rows;
  plan.max_held_bytes =
      std::max<int64_t>(0, demand.max_memory_bytes - plan.max_slabs * batch_bytes);
  return plan;
}

MemoryPlan PlanWindows(const WindowDemand& demand) {
  const int64_t least = std::max<int64_t>(demand.window_batches, 2);
  if (demand.max_memory_bytes / demand.slab_bytes < least) {
    throw InvalidArgument("max_memory must hold the batches of a shuffle window, ",
                          least * demand.slab_bytes, " bytes for ", least,
                          " batches: ", demand.max_memory_bytes,
                          " bytes; a smaller shuffle_window needs less");
  }
  const int64_t batch_bytes = demand.batch_bytes + kBookkeepingBytes;
  const int64_t column_bytes = std::max<int64_t>(demand.column_bytes, 1);
  // Returns the columns that fit beside a number of batches. It divides, since footers
  // may claim rows of any size.
  const auto columns_beside = [&](int64_t num_batches) {
    if (num_batches > demand.max_memory_bytes / batch_bytes) return kLeastStagedColumns;
    const int64_t spare = demand.max_memory_bytes - num_batches * batch_bytes;
    return std::max(kLeastStagedColumns, spare / column_bytes);
  };
  const int64_t columns =
      std::clamp(demand.num_columns, kLeastStagedColumns, columns_beside(least));
  const int64_t room = demand.max_memory_bytes - columns * column_bytes;
  MemoryPlan plan;
  plan.max_slabs =
      std::max(least, std::min(demand.in_flight_batches, room / batch_bytes));
  plan.max_columns = columns_beside(plan.max_slabs);
  plan.max_held_bytes = demand.max_memory_bytes - plan.max_slabs * demand.slab_bytes;
  return plan;
}

std::optional<double> StagedRowBytes(const FieldSpec& field, bool has_order) {
  const auto valid_bytes = static_cast<double>(field.has_valid ? field.valid_items : 0);
  if (field.num_offsets > 0) {
    return sizeof(int64_t) + field.column_row_bytes() + valid_bytes;
  }
  const int64_t cell_bytes = field.cell_items * field.item_bytes;
  if (!has_order && !WindowCells::AreItems(cell_bytes)) return std::nullopt;
  return static_cast<double>(cell_bytes) + valid_bytes;
}

double TensorBytes(const std::vector<FieldSpec>& fields, int64_t num_rows) {
  double num_bytes = 0;
  for (const FieldSpec& field : fields) {
    num_bytes += Aligned(num_rows, field.width * field.cell_items * field.item_bytes);
    if (field.has_valid) num_bytes += Aligned(num_rows, field.width * field.valid_items);
  }
  return num_bytes;
}

double WindowRowBytes(const std::vector<FieldSpec>& fields, int64_t batch_rows,
                      bool has_orders) {
  double items_bytes = 0;
  for (const FieldSpec& field : fields) items_bytes += field.row_bytes;
  // Offsets are one more than rows.
  const double batch_bytes =
      TensorBytes(fields, batch_rows + 1) + static_cast<double>(kBookkeepingBytes);
  return items_bytes + batch_bytes / static_cast<double>(batch_rows) +
         MostStagedRowBytes(fields, has_orders) +
         static_cast<double>(WindowPlaces::kRowBytes);
}

}  // namespace torchparquet
