#include "reader/prefetch/fetch_plan.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <map>
#include <vector>

#include "draws.h"

namespace torchparquet {
namespace {

using testing::Draws;

// Column chunks as writers place them: one after another, some left out, some read by
// several columns.
std::vector<ChunkBytes> DrawChunks(Draws* draws) {
  std::vector<ChunkBytes> chunks;
  int64_t at = 4;
  for (int64_t left = draws->Between(0, 12); left > 0; --left) {
    const int64_t num_bytes = draws->OneIn(8) ? 0 : draws->Between(1, 5'000);
    if (!draws->OneIn(3)) {
      chunks.push_back({std::ssize(chunks), {at, num_bytes}});
      if (draws->OneIn(5)) chunks.push_back({std::ssize(chunks), {at, num_bytes}});
    }
    at += num_bytes + (draws->OneIn(3) ? draws->Between(1, 900) : 0);
  }
  for (size_t i = 1; i < chunks.size(); ++i) {  // selected in any order
    std::swap(chunks[i], chunks[static_cast<size_t>(draws->Below(i + 1))]);
  }
  return chunks;
}

TEST_CASE("blocks are the column chunks, each byte once for each column") {
  Draws draws(1);
  for (int round = 0; round < 3'000; ++round) {
    const std::vector<ChunkBytes> chunks = DrawChunks(&draws);
    const int64_t max_bytes = draws.Between(100, 3'000);
    const std::vector<WantedBlock> blocks = CutBlocks(chunks, max_bytes);
    for (const ChunkBytes& chunk : chunks) {
      int64_t at = chunk.range.offset;
      for (const WantedBlock& block : blocks) {
        if (std::ranges::count(block.columns, chunk.column) == 0) continue;
        CHECK(block.range.offset == at);
        CHECK((at - chunk.range.offset) % max_bytes == 0);
        at = block.range.end();
      }
      CHECK(at == chunk.range.end());
    }
    for (size_t i = 0; i < blocks.size(); ++i) {
      CHECK(blocks[i].range.num_bytes > 0);
      CHECK(blocks[i].range.num_bytes <= max_bytes);
      if (i > 0) CHECK(blocks[i].range.offset >= blocks[i - 1].range.end());
    }
  }
}

TEST_CASE("a request holds neighbouring blocks and few other bytes") {
  Draws draws(2);
  for (int round = 0; round < 3'000; ++round) {
    const int64_t max_bytes = draws.Between(100, 9'000);
    const std::vector<WantedBlock> blocks = CutBlocks(DrawChunks(&draws), max_bytes);
    const std::vector<PlannedFetch> fetches =
        JoinBlocks(blocks, RequestSizes::For(0, max_bytes));
    size_t next = 0;
    for (const PlannedFetch& fetch : fetches) {
      REQUIRE_FALSE(fetch.blocks.empty());
      int64_t wanted = 0;
      for (const WantedBlock& block : fetch.blocks) {
        CHECK(block.range == blocks[next++].range);
        wanted += block.range.num_bytes;
      }
      CHECK(fetch.range.offset == fetch.blocks.front().range.offset);
      CHECK(fetch.range.end() == fetch.blocks.back().range.end());
      CHECK(fetch.range.num_bytes <= max_bytes);
      CHECK(static_cast<double>(fetch.range.num_bytes - wanted) <=
            kMaxWaste * static_cast<double>(fetch.range.num_bytes));
    }
    CHECK(next == blocks.size());
  }
}

TEST_CASE("neighbours are one request, up to its size and over small holes") {
  const auto ranges = [](const std::vector<ChunkBytes>& chunks) {
    std::vector<ByteRange> found;
    for (const PlannedFetch& fetch :
         JoinBlocks(CutBlocks(chunks, 1'000), RequestSizes::For(0, 1'000))) {
      found.push_back(fetch.range);
    }
    return found;
  };
  CHECK(ranges({{0, {0, 300}}, {1, {300, 300}}, {2, {600, 400}}}) ==
        std::vector<ByteRange>{{0, 1'000}});
  CHECK(ranges({{0, {0, 300}}, {1, {300, 701}}}) ==
        std::vector<ByteRange>{{0, 300}, {300, 701}});
  CHECK(ranges({{0, {0, 450}}, {1, {500, 450}}}) == std::vector<ByteRange>{{0, 950}});
  CHECK(ranges({{0, {0, 300}}, {1, {400, 300}}}) ==
        std::vector<ByteRange>{{0, 300}, {400, 300}});
  CHECK(ranges({{0, {0, 2'500}}}) ==
        std::vector<ByteRange>{{0, 1'000}, {1'000, 1'000}, {2'000, 500}});
}

TEST_CASE("the first requests are small, one for each connection") {
  constexpr int64_t kMiB = int64_t{1} << 20;
  std::vector<ChunkBytes> chunks;
  for (int64_t i = 0; i < 1'000; ++i) chunks.push_back({i, {i * kMiB / 4, kMiB / 4}});
  RequestSizes sizes = RequestSizes::For(0, 8 * kMiB);
  const auto fetches = JoinBlocks(CutBlocks(chunks), sizes);
  for (size_t i = 0; i < fetches.size() - 1; ++i) {
    const int64_t expected = i < 16 ? 1 : i < 32 ? 2 : i < 48 ? 4 : 8;
    CHECK(fetches[i].range.num_bytes == expected * kMiB);
  }
  sizes.num_before = 40;
  CHECK(JoinBlocks(CutBlocks(chunks), sizes)[0].range.num_bytes == 4 * kMiB);
  // All that is read at once comes at once.
  sizes = RequestSizes::For(30 * kMiB, 8 * kMiB);
  CHECK(sizes.MaxBytes(0) == 30 * kMiB / 12);
  CHECK(sizes.MaxBytes(16) == 30 * kMiB / 6);
  CHECK(sizes.MaxBytes(1'000) == 8 * kMiB);
  CHECK(RequestSizes::For(1'000 * kMiB, 8 * kMiB).MaxBytes(0) == 8 * kMiB);
}

TEST_CASE("a column chunk that overlaps another is left out") {
  const auto blocks = CutBlocks(std::vector<ChunkBytes>{{0, {0, 100}}, {1, {50, 100}}});
  REQUIRE(blocks.size() == 1);
  CHECK(blocks[0].columns == std::vector<int64_t>{0});
}

}  // namespace
}  // namespace torchparquet
