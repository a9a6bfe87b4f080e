#include "reader/plan/share.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <limits>
#include <memory>
#include <vector>

#include "caught.h"
#include "draws.h"

namespace torchparquet {
namespace {

using testing::Draws;
using testing::Throws;

Share RandomShare(Draws& draws) {
  Share share;
  share.world_size = draws.Between(1, 5);
  share.rank = draws.Below(share.world_size);
  share.chunks.resize(static_cast<size_t>(draws.Below(12)));
  for (Chunk& chunk : share.chunks) {
    chunk = {.file = draws.Below(4),
             .rows = {.row_group = draws.Below(9),
                      .begin = draws.Below(50),
                      .num_rows = draws.OneIn(3) ? 0 : draws.Below(90)},
             .first_row_id = draws.Below(1'000'000),
             .valid = !draws.OneIn(3)};
  }
  return share;
}

SliceCut RandomCut(Draws& draws) {
  SliceCut cut;
  cut.batch_rows = draws.OneIn(3) ? 0 : draws.Between(1, 20);
  cut.max_rows = draws.Between(std::max<int64_t>(1, cut.batch_rows), 45);
  return cut;
}

WorkSplit RandomSplit(Draws& draws) {
  return {.num_parts = draws.Between(1, 9), .least_rows = draws.Between(1, 30)};
}

// One row of a share, with all that a slice says about it.
struct Row {
  int64_t file;
  int64_t row_group;
  int64_t row;
  int64_t row_id;
  bool valid;
  int64_t chunk_number;

  bool operator==(const Row&) const = default;
};

void AppendRows(const Chunk& chunk, int64_t chunk_number, std::vector<Row>* rows) {
  for (int64_t i = 0; i < chunk.rows.num_rows; ++i) {
    rows->push_back({chunk.file, chunk.rows.row_group, chunk.rows.begin + i,
                     chunk.first_row_id + i, chunk.valid, chunk_number});
  }
}

std::vector<Row> RowsOf(const Share& share) {
  std::vector<Row> rows;
  int64_t chunk_number = 0;
  for (const Chunk& chunk : share.chunks) {
    AppendRows(chunk, chunk_number, &rows);
    chunk_number += chunk.rows.num_rows > 0;
  }
  return rows;
}

std::vector<Slice> SlicesOf(const Share& share, const SliceCut& cut) {
  std::vector<Slice> slices;
  for (SliceWalk walk(&share, cut); walk.next(); walk.Advance()) {
    slices.push_back(*walk.next());
  }
  return slices;
}

TEST_CASE("the slices are the share's rows in order, chunk by chunk") {
  Draws draws(40);
  for (int trial = 0; trial < 1000; ++trial) {
    const Share share = RandomShare(draws);
    const std::vector<Row> expected = RowsOf(share);
    std::vector<Row> found;
    SliceCut cut = RandomCut(draws);
    cut.split = RandomSplit(draws);
    for (const Slice& slice : SlicesOf(share, cut)) {
      CHECK(slice.share_row == static_cast<int64_t>(found.size()));
      AppendRows(slice.chunk, slice.chunk_number, &found);
      const bool chunk_goes_on =
          found.size() < expected.size() &&
          expected[found.size()].chunk_number == slice.chunk_number;
      CHECK(slice.ends_chunk == !chunk_goes_on);
    }
    CHECK(found == expected);
  }
}

TEST_CASE("chunks are cut only where they must be, and as late as a batch's end allows") {
  Draws draws(41);
  for (int trial = 0; trial < 1000; ++trial) {
    const Share share = RandomShare(draws);
    const std::vector<Row> rows = RowsOf(share);
    const SliceCut cut = RandomCut(draws);
    CAPTURE(cut.max_rows);
    CAPTURE(cut.batch_rows);
    for (const Slice& slice : SlicesOf(share, cut)) {
      const int64_t num_rows = slice.chunk.rows.num_rows;
      CHECK(num_rows >= 1);
      CHECK(num_rows <= cut.max_rows);
      const auto left_rows = std::count_if(
          rows.begin() + slice.share_row, rows.end(),
          [&](const Row& row) { return row.chunk_number == slice.chunk_number; });
      CHECK(slice.ends_chunk == (left_rows <= cut.max_rows));
      if (slice.ends_chunk) continue;
      if (cut.batch_rows > 0) CHECK((slice.share_row + num_rows) % cut.batch_rows == 0);
      CHECK(num_rows + std::max<int64_t>(1, cut.batch_rows) > cut.max_rows);
    }
  }
}

TEST_CASE("a chunk that begins within a batch is cut where batches end") {
  Share share;
  share.chunks = {
      {.rows = {.num_rows = 25}}, {.rows = {.num_rows = 20}}, {.rows = {.num_rows = 21}}};
  const auto sizes = [&](const SliceCut& cut) {
    std::vector<int64_t> found;
    for (const Slice& slice : SlicesOf(share, cut)) {
      found.push_back(slice.chunk.rows.num_rows);
    }
    return found;
  };
  CHECK(sizes({.max_rows = 20, .batch_rows = 10}) ==
        std::vector<int64_t>{20, 5, 20, 15, 6});
  CHECK(sizes({.max_rows = 20, .batch_rows = 0}) ==
        std::vector<int64_t>{20, 5, 20, 20, 1});
  CHECK(sizes({.max_rows = 25, .batch_rows = 25}) == std::vector<int64_t>{25, 20, 21});
  CHECK(sizes({.max_rows = std::numeric_limits<int64_t>::max(), .batch_rows = 10}) ==
        std::vector<int64_t>{25, 20, 21});
}

TEST_CASE("the slices at the end are small, so that threads end together") {
  Share share;
  share.chunks = {{.rows = {.num_rows = 100}}, {.rows = {.num_rows = 300}}};
  const auto sizes = [&](const WorkSplit& split, int64_t batch_rows = 10) {
    std::vector<int64_t> found;
    for (const Slice& slice :
         SlicesOf(share, {.max_rows = 1000, .batch_rows = batch_rows, .split = split})) {
      found.push_back(slice.chunk.rows.num_rows);
    }
    return found;
  };
  CHECK(sizes({.num_parts = 1}) == std::vector<int64_t>{100, 300});
  CHECK(sizes({.num_parts = 4, .least_rows = 50}) ==
        std::vector<int64_t>{100, 70, 50, 50, 50, 50, 30});
  CHECK(sizes({.num_parts = 4, .least_rows = 1}, 90) ==
        std::vector<int64_t>{100, 80, 90, 90, 40});
}

TEST_CASE("a window is cut to parts that hold its rows in order") {
  Draws draws(42);
  for (int trial = 0; trial < 1000; ++trial) {
    Share share = RandomShare(draws);
    const int64_t num_rows = NumRows(share);
    share.windows = {{.num_rows = num_rows, .end = num_rows}};
    const WorkSplit split = RandomSplit(draws);
    const WindowWalk walk(&share, split);
    REQUIRE(walk.next().has_value() == (num_rows > 0));
    if (num_rows == 0) continue;
    std::vector<Row> found;
    const int64_t most =
        std::max(split.least_rows, (num_rows + split.num_parts - 1) / split.num_parts);
    int64_t num_cut = 0;  // the fewest parts of at most so many rows
    for (const Chunk& chunk : share.chunks) {
      num_cut += (chunk.rows.num_rows + most - 1) / most;
    }
    CHECK(std::ssize(walk.next()->chunks) == num_cut);
    for (const Chunk& chunk : walk.next()->chunks) {
      CHECK(chunk.rows.num_rows <= most);
      AppendRows(chunk, 0, &found);
    }
    std::vector<Row> expected = RowsOf(share);
    for (Row& row : expected) row.chunk_number = 0;
    CHECK(found == expected);
  }
}

TEST_CASE("the end stays the end") {
  const Share empty;
  SliceWalk walk(&empty, {.max_rows = 8, .batch_rows = 4});
  for (int i = 0; i < 3; ++i) {
    CHECK_FALSE(walk.next());
    walk.Advance();
  }
}

// Row groups of 10 rows, two in each file.
std::shared_ptr<const RowGroups> TenRowGroups(bool are_selected = false) {
  auto groups = std::make_shared<RowGroups>();
  for (int64_t group = 0; group < 40; ++group) {
    groups->file.push_back(group / 2);
    groups->in_file.push_back(group % 2);
    groups->first_row.push_back(10 * group);
  }
  groups->are_selected = are_selected;
  return groups;
}

// An epoch of random ranges of them.
std::shared_ptr<const EpochOrder> RandomOrder(Draws& draws) {
  auto order = std::make_shared<EpochOrder>();
  order->row_groups = TenRowGroups();
  for (int64_t i = draws.Below(30); i > 0; --i) {
    order->row_group.push_back(draws.Below(40));
    order->begin.push_back(draws.Below(5));
    order->num_rows.push_back(draws.OneIn(4) ? 0 : draws.Between(1, 5));
  }
  return order;
}

// The ids of the rows of a share, by the rule alone.
std::vector<int64_t> RowIdsOf(const Share& share) {
  std::vector<int64_t> ids;
  int64_t left = share.dealt_rows;
  for (int64_t position = 0; position < share.order->size(); ++position) {
    if (position % share.world_size != share.rank) continue;
    const Chunk chunk = share.order->At(position);
    for (int64_t i = 0; i < chunk.rows.num_rows && left > 0; ++i, --left) {
      ids.push_back(chunk.first_row_id + i);
    }
  }
  for (const Chunk& chunk : share.chunks) {
    for (int64_t i = 0; i < chunk.rows.num_rows; ++i) {
      ids.push_back(chunk.first_row_id + i);
    }
  }
  ids.erase(ids.begin(), ids.begin() + std::min(share.skipped_rows, std::ssize(ids)));
  return ids;
}

std::vector<int64_t> SlicedIds(const Share& share) {
  std::vector<int64_t> ids;
  for (const Slice& slice : SlicesOf(share, {.max_rows = 4})) {
    for (int64_t i = 0; i < slice.chunk.rows.num_rows; ++i) {
      ids.push_back(slice.chunk.first_row_id + i);
    }
  }
  return ids;
}

TEST_CASE("a share is what the cursor deals of an epoch, cut, and what comes after") {
  Draws draws(43);
  for (int trial = 0; trial < 1000; ++trial) {
    Share share = RandomShare(draws);
    share.order = RandomOrder(draws);
    if (draws.OneIn(2)) share.dealt_rows = draws.Below(40);
    if (draws.OneIn(2)) share.skipped_rows = draws.Below(60);
    CheckShare(share);
    const std::vector<int64_t> expected = RowIdsOf(share);
    CHECK(SlicedIds(share) == expected);
    CHECK(NumRows(share) == std::ssize(expected));
    if (expected.empty()) continue;
    // Windows end where their rows do, also within a chunk.
    const int64_t first = draws.Between(1, std::ssize(expected));
    const int64_t rest = std::ssize(expected) - first;
    share.windows = {{.num_rows = first, .end = first}, {.num_rows = rest, .end = rest}};
    CheckShare(share);
    std::vector<int64_t> found;
    for (WindowWalk walk(&share); walk.next(); walk.Advance()) {
      CHECK(walk.next()->share_row == std::ssize(found));
      for (const Chunk& chunk : walk.next()->chunks) {
        CHECK(chunk.planned_begin == chunk.rows.begin);
        for (int64_t i = 0; i < chunk.rows.num_rows; ++i) {
          found.push_back(chunk.first_row_id + i);
        }
      }
    }
    CHECK(found == expected);
  }
}

TEST_CASE("the ids of chunks of selected rows are those of their row groups") {
  const Chunk chunk = TenRowGroups(true)->ChunkOf(7, 3, 5);
  CHECK(chunk.file == 3);
  CHECK(chunk.rows.row_group == 1);
  CHECK(chunk.rows.begin == 3);
  CHECK(chunk.first_row_id == 70);
  CHECK(chunk.selection == 7);
  CHECK(TenRowGroups()->ChunkOf(7, 3, 5).first_row_id == 73);
}

TEST_CASE("a share of claims grows as they come, and ends when they do") {
  Draws draws(44);
  Share share{.order = RandomOrder(draws)};
  while (share.order->size() < 3) share.order = RandomOrder(draws);
  share.claims = std::make_shared<Claims>();
  CheckShare(share);
  SliceWalk walk(&share, {.max_rows = 100});
  std::vector<int64_t> found;
  std::vector<int64_t> expected;
  for (const int64_t position : {2, 0, 1}) {
    CHECK_FALSE(walk.next());
    CHECK_FALSE(walk.has_ended());
    share.claims->Add(position);
    const Chunk chunk = share.order->At(position);
    for (int64_t i = 0; i < chunk.rows.num_rows; ++i) {
      expected.push_back(chunk.first_row_id + i);
    }
    walk.Advance();
    for (; walk.next(); walk.Advance()) {
      for (int64_t i = 0; i < walk.next()->chunk.rows.num_rows; ++i) {
        found.push_back(walk.next()->chunk.first_row_id + i);
      }
    }
  }
  CHECK(found == expected);
  share.claims->End();
  CHECK(walk.has_ended());
}

TEST_CASE("a share that contradicts itself is refused") {
  const auto refused = [](auto change) {
    Share share{.rank = 1, .world_size = 2};
    share.chunks = {{.rows = {.begin = 5, .num_rows = 7}},
                    {.file = 1, .rows = {.num_rows = 8}, .valid = false}};
    share.windows = {{.num_rows = 15, .key = 9, .begin = 1, .end = 15}};
    change(share);
    return Throws(ErrorKind::kInvalidArgument, [&] { CheckShare(share); });
  };
  CHECK_FALSE(refused([](Share&) {}));
  CHECK(refused([](Share& share) { share.chunks[1].file = -1; }));
  CHECK(refused([](Share& share) { share.chunks[1].rows.begin = -1; }));
  CHECK(refused([](Share& share) { share.chunks[1].rows.num_rows = -1; }));
  CHECK(refused([](Share& share) { share.dealt_rows = -1; }));
  CHECK(refused([](Share& share) { share.skipped_rows = -1; }));
  CHECK(refused([](Share& share) { share.skipped_rows = 1; }));
  CHECK(refused([](Share& share) { share.windows[0].num_rows = 14; }));
  CHECK(refused([](Share& share) { share.windows[0].num_rows = 16; }));
  CHECK(refused([](Share& share) { share.windows[0].begin = -1; }));
  CHECK(refused([](Share& share) { share.windows[0].begin = 16; }));
  CHECK(refused([](Share& share) { share.windows[0].end = 16; }));
  CHECK(refused([](Share& share) { share.claims = std::make_shared<Claims>(); }));
  for (const int64_t rank : {-1, 2}) {
    CHECK(refused([&](Share& share) { share.rank = rank; }));
  }
  CHECK(refused([](Share& share) { share.world_size = 0; }));
  const auto groups = TenRowGroups();
  for (const int64_t group : {-1, 40}) {
    CHECK(Throws(ErrorKind::kInvalidArgument, [&] { groups->ChunkOf(group, 0, 1); }));
  }
  CHECK(Throws(ErrorKind::kInvalidArgument, [&] { groups->ChunkOf(0, -1, 1); }));
  CHECK(Throws(ErrorKind::kInvalidArgument, [&] { groups->ChunkOf(0, 0, -1); }));
  EpochOrder none;
  none.row_groups = groups;
  CHECK(Throws(ErrorKind::kInvalidArgument, [&] { none.At(0); }));
}

}  // namespace
}  // namespace torchparquet
