#include "reader/read_order.h"

#include <cstdint>
#include <deque>
#include <limits>
#include <memory>
#include <optional>
#include <vector>

#include "tasks/lane_walks.h"
#include "tasks/share.h"
#include "tasks/task_context.h"

namespace torchparquet {
namespace {

std::vector<ReadStep> StepsOf(const ReaderSpec& spec, const Slice& slice) {
  return {StepWithRows(spec, slice.chunk)};
}

std::vector<ReadStep> StepsOf(const ReaderSpec& spec, const ChunkWindow& window) {
  std::vector<ReadStep> steps;
  steps.reserve(window.chunks.size());
  for (const Chunk& chunk : window.chunks) steps.push_back(StepWithRows(spec, chunk));
  return steps;
}

template <typename Walk>
NextSteps StepsAlong(const ReaderSpec& spec, std::shared_ptr<std::deque<Walk>> walks,
                     const BatchMap& batches) {
  return [&spec, walks = std::move(walks),
          &batches]() -> std::optional<std::vector<ReadStep>> {
    Walk* walk = FirstWalk(batches, *walks);
    if (walk == nullptr) return std::nullopt;
    std::vector<ReadStep> steps = StepsOf(spec, *walk->next());
    walk->Advance();
    return steps;
  };
}

}  // namespace

NextSteps ReadOrder(const ReaderSpec& spec, const BatchMap& batches) {
  if (spec.has_windows()) {
    auto walks = std::make_shared<std::deque<WindowWalk>>();
    for (int64_t lane = 0; lane < spec.num_lanes(); ++lane) {
      walks->emplace_back(&spec.lane(lane), WorkSplit{}, lane);
    }
    return StepsAlong(spec, std::move(walks), batches);
  }
  const SliceCut whole{.max_rows = std::numeric_limits<int64_t>::max()};
  auto walks = std::make_shared<std::deque<SliceWalk>>();
  for (int64_t lane = 0; lane < spec.num_lanes(); ++lane) {
    walks->emplace_back(&spec.lane(lane), whole, lane);
  }
  return StepsAlong(spec, std::move(walks), batches);
}

std::vector<StoredColumn> StoredColumns(const ReaderSpec& spec) {
  std::vector<StoredColumn> columns;
  columns.reserve(spec.columns.size());
  for (const ColumnSpec& column : spec.columns) columns.push_back(column.stored);
  return columns;
}

}  // namespace torchparquet
