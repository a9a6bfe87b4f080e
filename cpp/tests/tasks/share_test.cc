#include "tasks/share.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <array>
#include <limits>
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
    share.windows = {{.num_chunks = std::ssize(share.chunks), .end = num_rows}};
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

// The arrays that a share is made of, which agree.
struct Arrays {
  std::vector<int64_t> file{0, 1}, row_group{3, 4}, begin{5, 0}, num_rows{7, 8},
      first_row_id{100, 200};
  std::array<bool, 2> valid{true, false};
  std::vector<int64_t> num_chunks{2}, window_begin{1}, window_end{15};
  std::vector<uint64_t> key{9};

  Share Make(int64_t rank = 1, int64_t world_size = 2) const {
    return MakeShare(
        rank, world_size,
        {.file = file,
         .row_group = row_group,
         .begin = begin,
         .num_rows = num_rows,
         .first_row_id = first_row_id,
         .valid = valid},
        {.num_chunks = num_chunks, .key = key, .begin = window_begin, .end = window_end});
  }
};

TEST_CASE("a share is made of arrays, entry by entry") {
  const Share share = Arrays().Make();
  CHECK(share.rank == 1);
  CHECK(share.world_size == 2);
  REQUIRE(share.chunks.size() == 2);
  CHECK(share.chunks[0].file == 0);
  CHECK(share.chunks[0].rows.row_group == 3);
  CHECK(share.chunks[0].rows.begin == 5);
  CHECK(share.chunks[0].rows.num_rows == 7);
  CHECK(share.chunks[0].first_row_id == 100);
  CHECK(share.chunks[0].valid);
  CHECK_FALSE(share.chunks[1].valid);
  REQUIRE(share.windows.size() == 1);
  CHECK(share.windows[0].num_chunks == 2);
  CHECK(share.windows[0].key == 9);
  CHECK(share.windows[0].begin == 1);
  CHECK(share.windows[0].end == 15);
  CHECK(NumRows(share) == 14);
}

TEST_CASE("a share that contradicts itself is not made") {
  const auto refused = [](auto change) {
    Arrays arrays;
    change(arrays);
    return Throws(ErrorKind::kInvalidArgument, [&] { arrays.Make(); });
  };
  CHECK_FALSE(refused([](Arrays&) {}));
  for (auto member : {&Arrays::file, &Arrays::row_group, &Arrays::begin,
                      &Arrays::num_rows, &Arrays::first_row_id, &Arrays::num_chunks,
                      &Arrays::window_begin, &Arrays::window_end}) {
    CHECK(refused([&](Arrays& arrays) { (arrays.*member).pop_back(); }));
    CHECK(refused([&](Arrays& arrays) { (arrays.*member).push_back(0); }));
  }
  CHECK(refused([](Arrays& arrays) { arrays.key.clear(); }));
  CHECK(refused([](Arrays& arrays) { arrays.file[1] = -1; }));
  CHECK(refused([](Arrays& arrays) { arrays.begin[1] = -1; }));
  CHECK(refused([](Arrays& arrays) { arrays.num_rows[1] = -1; }));
  CHECK(refused([](Arrays& arrays) { arrays.num_chunks[0] = 1; }));
  CHECK(refused([](Arrays& arrays) { arrays.num_chunks[0] = 3; }));
  CHECK(refused([](Arrays& arrays) { arrays.window_begin[0] = -1; }));
  CHECK(refused([](Arrays& arrays) { arrays.window_begin[0] = 16; }));
  CHECK(refused([](Arrays& arrays) { arrays.window_end[0] = 16; }));
  for (const int64_t rank : {-1, 2}) {
    CHECK(Throws(ErrorKind::kInvalidArgument, [&] { Arrays().Make(rank, 2); }));
  }
  CHECK(Throws(ErrorKind::kInvalidArgument, [] { Arrays().Make(0, 0); }));
}

}  // namespace
}  // namespace torchparquet
