#include "reader/read_order.h"

#include <algorithm>
#include <cstdint>
#include <deque>
#include <limits>
#include <memory>
#include <optional>
#include <vector>

#include "reader/plan/share.h"
#include "reader/schedule/lane_walks.h"
#include "reader/schedule/task_context.h"

namespace torchparquet {
namespace {

const std::vector<Chunk>& ChunksOf(const ChunkWindow& window) { return window.chunks; }
std::vector<Chunk> ChunksOf(const Slice& slice) { return {slice.chunk}; }

template <typename Part>
std::vector<ReadStep> StepsOf(const ReaderSpec& spec, const Part& part) {
  std::vector<ReadStep> steps;
  for (const Chunk& chunk : ChunksOf(part)) steps.push_back(StepWithRows(spec, chunk));
  return steps;
}

template <typename Walk>
NextSteps StepsAlong(const ReaderSpec& spec, std::shared_ptr<std::deque<Walk>> walks,
                     const BatchMap& batches) {
  return [&spec, walks = std::move(walks),
          &batches]() -> std::optional<std::vector<ReadStep>> {
    for (Walk& walk : *walks) {
      if (!walk.next()) walk.Advance();
    }
    Walk* walk = FirstWalk(batches, *walks);
    if (walk != nullptr) {
      std::vector<ReadStep> steps = StepsOf(spec, *walk->next());
      walk->Advance();
      return steps;
    }
    const auto has_ended = [](const Walk& one) { return one.has_ended(); };
    if (std::ranges::all_of(*walks, has_ended)) return std::nullopt;
    return std::vector<ReadStep>();
  };
}

constexpr SliceCut kWhole{.max_rows = std::numeric_limits<int64_t>::max()};

// Appends the first steps of a walk, one list for each.
template <typename Walk>
void AppendFirst(const ReaderSpec& spec, Walk walk, int64_t count,
                 std::vector<std::vector<ReadStep>>* steps) {
  for (; walk.next() && count > 0; --count, walk.Advance()) {
    for (const Chunk& chunk : ChunksOf(*walk.next())) CheckChunk(spec, chunk);
    steps->push_back(StepsOf(spec, *walk.next()));
  }
}

}  // namespace

std::vector<std::vector<ReadStep>> FirstSteps(const ReaderSpec& spec,
                                              const std::vector<Share>& shares,
                                              int64_t count) {
  std::vector<std::vector<std::vector<ReadStep>>> by_share;
  for (const Share& share : shares) {
    CheckShare(share);
    auto& steps = by_share.emplace_back();
    if (share.windows.empty()) {
      AppendFirst(spec, SliceWalk(&share, kWhole), count, &steps);
    } else {
      AppendFirst(spec, WindowWalk(&share), count, &steps);
    }
  }
  std::vector<std::vector<ReadStep>> found;
  for (size_t number = 0; number < static_cast<size_t>(count); ++number) {
    for (auto& steps : by_share) {
      if (number < steps.size()) found.push_back(std::move(steps[number]));
    }
  }
  return found;
}

NextSteps ReadOrder(const ReaderSpec& spec, const BatchMap& batches) {
  if (spec.has_windows()) {
    auto walks = std::make_shared<std::deque<WindowWalk>>();
    for (int64_t lane = 0; lane < spec.num_lanes(); ++lane) {
      walks->emplace_back(&spec.lane(lane), WorkSplit{}, lane);
    }
    return StepsAlong(spec, std::move(walks), batches);
  }
  auto walks = std::make_shared<std::deque<SliceWalk>>();
  for (int64_t lane = 0; lane < spec.num_lanes(); ++lane) {
    walks->emplace_back(&spec.lane(lane), kWhole, lane);
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
