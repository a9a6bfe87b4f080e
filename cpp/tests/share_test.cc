#include "share.h"

#include <doctest/doctest.h>

#include <limits>
#include <vector>

#include "draws.h"

namespace torchparquet {
namespace {

using testing::Draws;

Share RandomShare(Draws& draws) {
  Share share;
  share.world_size = draws.Between(1, 5);
  share.rank = draws.Below(share.world_size);
  share.chunks.resize(static_cast<size_t>(draws.Below(12)));
  for (Chunk& chunk : share.chunks) {
    chunk = {.file = draws.Below(4),
             .rows = {.row_group = draws.Below(9),
                      .begin = draws.Below(50),
                      .num_rows = draws.OneIn(3) ? 0 : draws.Below(40)},
             .first_row_id = draws.Below(1'000'000),
             .valid = !draws.OneIn(3)};
  }
  return share;
}

// One row of a share, with all that a slice says about it.
struct Row {
  int64_t file;
  int64_t row_group;
  int64_t row;
  int64_t row_id;
  bool valid;

  bool operator==(const Row&) const = default;
};

void AppendRows(const Chunk& chunk, std::vector<Row>* rows) {
  for (int64_t i = 0; i < chunk.rows.num_rows; ++i) {
    rows->push_back({chunk.file, chunk.rows.row_group, chunk.rows.begin + i,
                     chunk.first_row_id + i, chunk.valid});
  }
}

TEST_CASE("the slices are the share's rows in order, none too long, none empty") {
  Draws draws(40);
  for (int trial = 0; trial < 500; ++trial) {
    const Share share = RandomShare(draws);
    const int64_t max_slice_rows = draws.Between(1, 45);
    std::vector<Row> expected;
    for (const Chunk& chunk : share.chunks) AppendRows(chunk, &expected);

    std::vector<Row> found;
    for (SliceWalk walk(&share, max_slice_rows); walk.next(); walk.Advance()) {
      const Slice& slice = *walk.next();
      CHECK(slice.share_row == static_cast<int64_t>(found.size()));
      CHECK(slice.chunk.rows.num_rows >= 1);
      CHECK(slice.chunk.rows.num_rows <= max_slice_rows);
      AppendRows(slice.chunk, &found);
    }
    CHECK(found == expected);
  }
}

TEST_CASE("chunks are cut as seldom as the bound allows") {
  Share share;
  share.chunks = {
      {.rows = {.num_rows = 25}}, {.rows = {.num_rows = 10}}, {.rows = {.num_rows = 1}}};
  std::vector<int64_t> sizes;
  for (SliceWalk walk(&share, 10); walk.next(); walk.Advance()) {
    sizes.push_back(walk.next()->chunk.rows.num_rows);
  }
  CHECK(sizes == std::vector<int64_t>{10, 10, 5, 10, 1});
  const SliceWalk whole(&share, std::numeric_limits<int64_t>::max());
  CHECK(whole.next()->chunk.rows.num_rows == 25);
}

TEST_CASE("the end stays the end") {
  const Share empty;
  SliceWalk walk(&empty, 8);
  for (int i = 0; i < 3; ++i) {
    CHECK_FALSE(walk.next());
    walk.Advance();
  }
}

}  // namespace
}  // namespace torchparquet
