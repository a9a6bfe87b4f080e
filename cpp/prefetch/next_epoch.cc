#include "prefetch/next_epoch.h"

#include <algorithm>
#include <iterator>
#include <utility>

namespace torchparquet {

void NextEpoch::Announce(std::vector<std::vector<ReadStep>> steps) {
  if (parts_.carried == nullptr) return;
  std::ranges::move(steps, std::back_inserter(steps_));
}

void NextEpoch::Advance(const std::function<bool(int64_t num_bytes)>& has_room) {
  while (true) {
    if (waiting_.empty()) {
      if (steps_.empty()) return;
      for (const ReadStep& step : steps_.front()) {
        if (!parts_.files->is_remote(step.file)) continue;
        const auto chunks = ChunksOf(step, parts_.files.get(), parts_.columns);
        if (!chunks) continue;
        // They may be large at once: nobody waits for them yet.
        const RequestSizes sizes{.first_bytes = parts_.max_block_bytes,
                                 .max_bytes = parts_.max_block_bytes};
        for (PlannedFetch& fetch :
             JoinBlocks(CutBlocks(*chunks, parts_.max_block_bytes), sizes)) {
          waiting_.push_back({step.file, std::move(fetch)});
        }
      }
      steps_.pop_front();
      parts_.carried->AddStep();
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
    for (const WantedBlock& block : next.fetch.blocks) blocks.push_back(block.range);
    auto fetch = std::make_shared<Fetch>(parts_.files->remote(next.file),
                                         next.fetch.range, parts_.memory);
    parts_.carried->Begin(parts_.reads->shared_fetcher(),
                          {std::move(fetch), std::move(blocks)});
    waiting_.pop_front();
  }
}

}  // namespace torchparquet
