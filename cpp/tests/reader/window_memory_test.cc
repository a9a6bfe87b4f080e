#include <doctest/doctest.h>

#include <vector>

#include "reader/memory_plan.h"

namespace torchparquet {
namespace {

const FieldSpec kInt64{.item_bytes = 8};
const FieldSpec kMaskedFloats{.item_bytes = 4, .width = 3, .has_valid = true};
const FieldSpec kTriple{.item_bytes = 8, .cell_items = 3};
const FieldSpec kStrings{
    .item_bytes = 8, .has_valid = true, .num_offsets = 1, .row_bytes = 20.5};

TEST_CASE("columns are staged whose cells are items, or of variable length") {
  CHECK(StagedRowBytes(kInt64) == 8);
  CHECK(StagedRowBytes(kMaskedFloats) == 5);
  CHECK_FALSE(StagedRowBytes(kTriple));
  CHECK(StagedRowBytes(kStrings) == 8 + 20.5 + 1);
}

TEST_CASE("each tensor of a batch is aligned") {
  CHECK(TensorBytes({kInt64}, 8) == 64);
  CHECK(TensorBytes({kInt64}, 9) == 128);
  CHECK(TensorBytes({kMaskedFloats}, 10) == 128 + 64);
  CHECK(TensorBytes({kTriple, kStrings}, 1) == 64 + 64 + 64);
  CHECK(TensorBytes({}, 10) == 0);
}

TEST_CASE("a row takes its part of the batch, two staged columns and six bytes") {
  // 64 rows and one more: 576 bytes of int64. The batch itself is kept in 256.
  CHECK(WindowRowBytes({kInt64}, 64) == (576 + 256) / 64. + 8 + 6);
  CHECK(WindowRowBytes({kTriple}, 64) == (1600 + 256) / 64. + 6);
  CHECK(WindowRowBytes({kMaskedFloats}, 64) == (832 + 256 + 256) / 64. + 2 * 5 + 6);
  CHECK(WindowRowBytes({kInt64, kStrings, kMaskedFloats}, 64) ==
        20.5 + (576 + 576 + 128 + 832 + 256 + 256) / 64. + 29.5 + 8 + 6);
}

TEST_CASE("rows of more bytes than can be counted are added up too") {
  constexpr int64_t kRows = int64_t{1} << 60;
  CHECK(TensorBytes({kTriple}, kRows) == 24 * 0x1p60);
  CHECK(WindowRowBytes({kTriple}, kRows) == 24 + 6);
  CHECK(WindowRowBytes({kTriple}, kRows, true) == 24 + 24 + 6);
}

}  // namespace
}  // namespace torchparquet
