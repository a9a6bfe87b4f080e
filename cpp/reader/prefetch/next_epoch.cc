#include "reader/prefetch/next_epoch.h"

#include <algorithm>
#include <cstddef>
#include <iterator>
#include <utility>

namespace torchparquet {

void NextEpoch::Announce(std::vector<std::vector<ReadStep>> steps) {
  if (parts_.carried == nullptr) return;
  std::ranges::move(steps, std::back_inserter(steps_));
}

// In the order in which the reader will ask for blocks that do not come along.
void NextEpoch::Plan(const std::vector<ReadStep>& steps) {
  std::vector<std::pair<int64_t, std::vector<WantedBlock>>> blocks;  // of files
  int64_t num_bytes = 0;
  for (const ReadStep& step : steps) {
    if (!parts_.files->is_remote(step.file) || !parts_.files->has_footer(step.file)) {
      continue;
    }
    const auto chunks =
        ChunksOf(step, parts_.files.get(), parts_.columns, /*reads_indexes=*/false);
    if (!chunks) continue;
    blocks.emplace_back(step.file, CutBlocks(*chunks, parts_.max_block_bytes));
    std::erase_if(blocks.back().second, [&](const WantedBlock& block) {
      return !planned_.emplace(step.file, block.range.offset).second;
    });
    for (const WantedBlock& block : blocks.back().second) {
      num_bytes += block.range.num_bytes;
    }
  }
  // Requests may be large at once: nobody waits for them yet.
  const RequestSizes sizes{.first_bytes = parts_.max_block_bytes,
                           .max_bytes = parts_.max_block_bytes};
  const auto add = [&](int64_t file, std::vector<WantedBlock> wanted) {
    for (PlannedFetch& fetch : JoinBlocks(std::move(wanted), sizes)) {
      waiting_.push_back({file, std::move(fetch)});
    }
  };
  if (num_bytes <= 2 * parts_.max_bytes) {
    for (auto& [file, wanted] : blocks) add(file, std::move(wanted));
    return;
  }
  for (size_t column = 0; column < parts_.columns.size(); ++column) {
    for (const auto& [file, wanted] : blocks) {
      std::vector<WantedBlock> of_column;
      std::ranges::copy_if(wanted, std::back_inserter(of_column),
                           [&](const WantedBlock& block) {
                             return block.columns.front() == static_cast<int64_t>(column);
                           });
      add(file, std::move(of_column));
    }
  }
}

void NextEpoch::Advance(const std::function<bool(int64_t num_bytes)>& has_room) {
  while (true) {
    if (waiting_.empty()) {
      if (steps_.empty()) return;
      Plan(steps_.front());
      steps_.pop_front();
      if (waiting_.empty()) {
        parts_.carried->AddStep();
      } else {
        waiting_.back().ends_step = true;
      }
      continue;
    }
    Waiting& next = waiting_.front();
    const int64_t num_bytes = next.fetch.range.num_bytes;
    const int64_t after = parts_.carried->num_bytes() + num_bytes;
    if (after > parts_.max_bytes) {
      steps_.clear();
      waiting_.clear();
      return;
    }
    if (!has_room(num_bytes)) return;
    std::vector<ByteRange> blocks;
    blocks.reserve(next.fetch.blocks.size());
    for (const WantedBlock& block : next.fetch.blocks) blocks.push_back(block.range);
    auto fetch = std::make_shared<Fetch>(parts_.files->remote(next.file),
                                         next.fetch.range, parts_.memory);
    parts_.carried->Begin(parts_.reads->shared_fetcher(),
                          {std::move(fetch), std::move(blocks)});
    if (next.ends_step) parts_.carried->AddStep();
    waiting_.pop_front();
  }
}

}  // namespace torchparquet
