#include "reader/prefetch/fetch_plan.h"

#include <algorithm>
#include <cstddef>
#include <map>
#include <numeric>
#include <utility>

namespace torchparquet {
namespace {

constexpr int64_t kFirstRequestBytes = int64_t{1} << 20;
// After as many as a process has connections at first, requests may be twice as large.
constexpr int64_t kRequestsOfASize = 16;

// True if the block may go into the request, with the hole before it.
bool Joins(const PlannedFetch& fetch, int64_t hole_bytes, const WantedBlock& block,
           int64_t max_bytes) {
  const int64_t gap = block.range.offset - fetch.range.end();
  const int64_t num_bytes = block.range.end() - fetch.range.offset;
  return gap <= kMaxHoleBytes && num_bytes <= max_bytes &&
         static_cast<double>(hole_bytes + gap) <=
             kMaxWaste * static_cast<double>(num_bytes);
}

// The part of its column chunk that comes before a block.
double PositionOf(const WantedBlock& block, const std::vector<ChunkBytes>& chunks) {
  const auto chunk =
      std::ranges::find(chunks, block.columns.front(), &ChunkBytes::column);
  return static_cast<double>(block.range.offset - chunk->range.offset) /
         static_cast<double>(chunk->range.num_bytes);
}

}  // namespace

int64_t SumBytes(std::span<const WantedBlock> blocks) {
  return std::accumulate(
      blocks.begin(), blocks.end(), int64_t{0},
      [](int64_t sum, const WantedBlock& block) { return sum + block.range.num_bytes; });
}

std::vector<StepBlocks> InOrder(std::vector<StepBlocks> steps, bool fit) {
  if (fit) return steps;
  std::vector<StepBlocks> ordered;
  if (steps.size() == 1) {
    StepBlocks& step = steps.front();
    std::ranges::sort(step.blocks, {}, [&](const WantedBlock& block) {
      return std::pair(PositionOf(block, step.chunks), block.range.offset);
    });
    for (WantedBlock& block : step.blocks) {
      ordered.push_back({step.file, {}, {std::move(block)}});
    }
    return ordered;
  }
  using ColumnOfStep = std::pair<int64_t, size_t>;
  std::map<ColumnOfStep, std::vector<WantedBlock>> columns;
  for (size_t step = 0; step < steps.size(); ++step) {
    for (WantedBlock& block : steps[step].blocks) {
      columns[{block.columns.front(), step}].push_back(std::move(block));
    }
  }
  for (auto& [column, blocks] : columns) {
    ordered.push_back({steps[column.second].file, {}, std::move(blocks)});
  }
  return ordered;
}

std::vector<WantedBlock> CutBlocks(std::span<const ChunkBytes> chunks,
                                   int64_t max_block_bytes) {
  std::vector<ChunkBytes> ordered(chunks.begin(), chunks.end());
  std::ranges::sort(ordered, {}, [](const ChunkBytes& chunk) {
    return std::pair(chunk.range.offset, chunk.column);
  });
  std::vector<WantedBlock> blocks;
  ByteRange before{-1, 0};
  size_t first_block = 0;  // of the chunk before
  for (const ChunkBytes& chunk : ordered) {
    if (chunk.range.num_bytes == 0) continue;
    if (chunk.range == before) {
      for (size_t i = first_block; i < blocks.size(); ++i) {
        blocks[i].columns.push_back(chunk.column);
      }
      continue;
    }
    if (before.offset >= 0 && chunk.range.offset < before.end()) continue;
    before = chunk.range;
    first_block = blocks.size();
    const int64_t block_bytes = chunk.parts.empty()
                                    ? max_block_bytes
                                    : std::min(max_block_bytes, kPartBlockBytes);
    auto part = chunk.parts.begin();
    for (int64_t at = before.offset; at < before.end(); at += block_bytes) {
      const int64_t end = std::min(at + block_bytes, before.end());
      if (!chunk.parts.empty()) {
        while (part != chunk.parts.end() && part->end() <= at) ++part;
        if (part == chunk.parts.end()) break;
        if (part->offset >= end) continue;
      }
      blocks.push_back({.range = {at, end - at}, .columns = {chunk.column}});
    }
  }
  return blocks;
}

RequestSizes RequestSizes::For(int64_t num_bytes, int64_t max_bytes) {
  // Requests are seldom full: so many make up for that, and each gets a connection.
  constexpr int64_t kFull = kRequestsOfASize * 3 / 4;
  return {
      .first_bytes = std::min(std::max(num_bytes / kFull, kFirstRequestBytes), max_bytes),
      .max_bytes = max_bytes};
}

int64_t RequestSizes::MaxBytes(int64_t number) const {
  int64_t num_bytes = first_bytes;
  for (int64_t doublings = (num_before + number) / kRequestsOfASize;
       doublings > 0 && num_bytes < max_bytes; --doublings) {
    num_bytes *= 2;
  }
  return std::min(num_bytes, max_bytes);
}

std::vector<PlannedFetch> JoinBlocks(std::vector<WantedBlock> blocks,
                                     const RequestSizes& sizes) {
  std::vector<PlannedFetch> fetches;
  int64_t hole_bytes = 0;
  for (WantedBlock& block : blocks) {
    if (fetches.empty() || !Joins(fetches.back(), hole_bytes, block,
                                  sizes.MaxBytes(std::ssize(fetches) - 1))) {
      hole_bytes = 0;
      fetches.push_back({.range = block.range, .blocks = {}});
    }
    PlannedFetch& fetch = fetches.back();
    hole_bytes += std::max<int64_t>(block.range.offset - fetch.range.end(), 0);
    fetch.range.num_bytes = block.range.end() - fetch.range.offset;
    fetch.blocks.push_back(std::move(block));
  }
  return fetches;
}

}  // namespace torchparquet
