#include "memory_plan.h"

#include <algorithm>
#include <string>

#include "errors.h"

namespace torchparquet {
namespace {

int64_t CeilDivide(int64_t value, int64_t divisor) {
  return (value + divisor - 1) / divisor;
}

// Batches kept in flight even where the chunks are small, so that a consumer that
// pauses for a moment does not stop the threads.
constexpr int64_t kMinInFlightBytes = int64_t{32} << 20;

}  // namespace

MemoryPlan PlanMemory(const MemoryDemand& demand) {
  const int64_t affordable_slabs = demand.max_memory_bytes / demand.slab_bytes;
  if (affordable_slabs < 2) {
    throw Error(ErrorKind::kInvalidArgument,
                "max_memory must hold at least two batches, " +
                    std::to_string(2 * demand.slab_bytes) + " bytes for batches of " +
                    std::to_string(demand.batch_rows) +
                    " rows: " + std::to_string(demand.max_memory_bytes) + " bytes");
  }
  // Every thread needs a task of its own, the consumer a slice to take from, and the
  // threads the next one to go on with.
  const int64_t slices_in_flight = CeilDivide(demand.num_threads, demand.num_tasks) + 2;
  const int64_t slabs_per_slice = std::clamp<int64_t>(
      (affordable_slabs - 1) / slices_in_flight, 1,
      std::max<int64_t>(1, CeilDivide(demand.max_chunk_rows, demand.batch_rows)));
  // A slice that begins within a batch touches one batch more, which is open already.
  const int64_t wanted_slabs = std::max(slices_in_flight * slabs_per_slice + 1,
                                        CeilDivide(kMinInFlightBytes, demand.slab_bytes));
  MemoryPlan plan;
  plan.max_slabs =
      std::max<int64_t>(2, std::min({wanted_slabs, affordable_slabs,
                                     std::max<int64_t>(demand.num_batches, 2)}));
  plan.max_slice_rows = slabs_per_slice * demand.batch_rows;
  return plan;
}

}  // namespace torchparquet
