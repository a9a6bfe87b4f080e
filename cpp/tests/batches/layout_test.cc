#include "batches/layout.h"

#include <doctest/doctest.h>

#include <limits>
#include <utility>
#include <vector>

#include "caught.h"
#include "draws.h"

namespace torchparquet {
namespace {

using testing::Draws;
using testing::Throws;

constexpr int64_t kSizes[] = {1, 2, 4, 8};

std::vector<FieldSpec> RandomFields(Draws& draws) {
  std::vector<FieldSpec> fields(static_cast<size_t>(draws.Between(1, 6)));
  for (FieldSpec& field : fields) {
    field = {.item_bytes = kSizes[draws.Below(4)],
             .width = draws.Between(1, 5),
             .has_valid = draws.OneIn(2)};
  }
  return fields;
}

// Marks the bytes [begin, begin + num_bytes) and checks that none was marked before.
void Occupy(std::vector<bool>* slab, int64_t begin, int64_t num_bytes) {
  CHECK(begin % BatchLayout::kFieldAlignment == 0);
  REQUIRE(begin >= 0);
  REQUIRE(begin + num_bytes <= static_cast<int64_t>(slab->size()));
  bool free = true;
  for (int64_t i = begin; i < begin + num_bytes; ++i) {
    free = free && !(*slab)[static_cast<size_t>(i)];
    (*slab)[static_cast<size_t>(i)] = true;
  }
  CHECK(free);
}

TEST_CASE("fields are aligned, within the slab, in order, and apart") {
  Draws draws(20);
  for (int trial = 0; trial < 200; ++trial) {
    const std::vector<FieldSpec> fields = RandomFields(draws);
    const int64_t rows = draws.Between(1, 70);
    const BatchLayout layout = MakeBatchLayout(fields, rows);
    CHECK(layout.capacity_rows == rows);
    CHECK(layout.slab_bytes % BatchLayout::kFieldAlignment == 0);
    REQUIRE(layout.fields.size() == fields.size());
    std::vector<bool> slab(static_cast<size_t>(layout.slab_bytes));
    int64_t previous = -1;
    int64_t num_arrays = 0;
    int64_t num_bytes = 0;
    for (size_t i = 0; i < fields.size(); ++i) {
      const FieldPlace& place = layout.fields[i];
      CHECK(place.item_bytes == fields[i].item_bytes);
      CHECK(place.width == fields[i].width);
      CHECK(place.values_offset > previous);
      const int64_t num_items = rows * fields[i].width;
      Occupy(&slab, place.values_offset, num_items * fields[i].item_bytes);
      num_bytes += num_items * fields[i].item_bytes;
      previous = place.values_offset;
      ++num_arrays;
      CHECK((place.valid_offset >= 0) == fields[i].has_valid);
      if (!fields[i].has_valid) continue;
      CHECK(place.valid_offset > previous);
      Occupy(&slab, place.valid_offset, num_items);
      num_bytes += num_items;
      previous = place.valid_offset;
      ++num_arrays;
    }
    CHECK(layout.slab_bytes - num_bytes < num_arrays * BatchLayout::kFieldAlignment);
  }
}

TEST_CASE("layouts that cannot be are refused") {
  const auto make = [](FieldSpec field, int64_t rows) {
    return [=] { MakeBatchLayout({field}, rows); };
  };
  constexpr int64_t kMost = std::numeric_limits<int64_t>::max();
  for (const int64_t rows : {int64_t{0}, int64_t{-1}}) {
    CHECK(Throws(ErrorKind::kInvalidArgument, make({.item_bytes = 8}, rows)));
  }
  for (const int64_t item_bytes : {-1, 0, 3, 5, 16}) {
    CHECK(Throws(ErrorKind::kInvalidArgument, make({.item_bytes = item_bytes}, 4)));
  }
  for (const int64_t width : {0, -2}) {
    CHECK(
        Throws(ErrorKind::kInvalidArgument, make({.item_bytes = 8, .width = width}, 4)));
  }
  CHECK(Throws(ErrorKind::kInvalidArgument, make({.item_bytes = 1}, kMost)));
  CHECK(Throws(ErrorKind::kInvalidArgument, make({.item_bytes = 8, .width = kMost}, 1)));
  CHECK(Throws(ErrorKind::kInvalidArgument,
               make({.item_bytes = 8, .width = kMost}, kMost)));
  CHECK(Throws(ErrorKind::kInvalidArgument, make({.item_bytes = 8}, int64_t{1} << 44)));
  CHECK(Throws(ErrorKind::kInvalidArgument, [] {
    MakeBatchLayout(std::vector<FieldSpec>(100, {.item_bytes = 8}), int64_t{1} << 40);
  }));
}

TEST_CASE("fields of variable length have one offset more than rows, and a row mask") {
  Draws draws(22);
  for (int trial = 0; trial < 100; ++trial) {
    std::vector<FieldSpec> fields = RandomFields(draws);
    for (FieldSpec& field : fields) {
      if (draws.OneIn(2)) {
        field = {.item_bytes = 8,
                 .has_valid = field.has_valid,
                 .num_offsets = draws.Between(1, 4),
                 .has_item_valid = draws.OneIn(2)};
      } else {
        // Cells of several items, all of which may have a place in the mask.
        field.cell_items = draws.Between(1, 6);
        field.width = 1;
        field.valid_items = draws.OneIn(2) ? field.cell_items : 1;
      }
    }
    const int64_t rows = draws.Between(1, 70);
    const BatchLayout layout = MakeBatchLayout(fields, rows);
    std::vector<bool> slab(static_cast<size_t>(layout.slab_bytes));
    std::vector<int64_t> jagged_fields;
    for (size_t i = 0; i < fields.size(); ++i) {
      const FieldPlace& place = layout.fields[i];
      const bool is_jagged = fields[i].num_offsets > 0;
      CHECK(place.num_offsets == fields[i].num_offsets);
      CHECK(place.jagged_index == (is_jagged ? std::ssize(jagged_fields) : -1));
      if (is_jagged) jagged_fields.push_back(static_cast<int64_t>(i));
      CHECK(place.cell_items == fields[i].cell_items);
      CHECK(place.valid_items == fields[i].valid_items);
      Occupy(&slab, place.values_offset,
             (rows + is_jagged) * fields[i].cell_items * fields[i].item_bytes);
      CHECK((place.valid_offset >= 0) == fields[i].has_valid);
      if (!fields[i].has_valid) continue;
      Occupy(&slab, place.valid_offset, rows * fields[i].valid_items);
    }
    CHECK(layout.jagged_fields == jagged_fields);
  }
}

TEST_CASE("fields of variable length have no other shape") {
  const auto make = [](FieldSpec field) { return [=] { MakeBatchLayout({field}, 4); }; };
  make({.item_bytes = 8, .num_offsets = 1})();
  for (const FieldSpec& field :
       {FieldSpec{.item_bytes = 4, .num_offsets = 1},
        FieldSpec{.item_bytes = 8, .width = 2, .num_offsets = 1},
        FieldSpec{.item_bytes = 8, .cell_items = 2, .num_offsets = 1},
        FieldSpec{.item_bytes = 8, .width = 2, .cell_items = 2},
        FieldSpec{.item_bytes = 8, .cell_items = 0}}) {
    CHECK(Throws(ErrorKind::kInvalidArgument, make(field)));
  }
}

// Compares a map with a list of the rows of every batch.
void CheckMap(const BatchMap& map, const std::vector<int64_t>& batch_rows) {
  CHECK(map.num_batches() == static_cast<int64_t>(batch_rows.size()));
  int64_t row = 0;
  int64_t most = 0;
  int64_t mismatches = 0;
  for (int64_t batch = 0; batch < static_cast<int64_t>(batch_rows.size()); ++batch) {
    const int64_t rows = batch_rows[static_cast<size_t>(batch)];
    mismatches += map.BatchBegin(batch) != row || map.BatchRows(batch) != rows;
    for (int64_t i = 0; i < rows; ++i, ++row) {
      const BatchPlace place = map.Locate(row);
      mismatches += place.batch != batch || place.row != i;
    }
    most = std::max(most, rows);
  }
  CHECK(mismatches == 0);
  CHECK(map.num_rows() == row);
  CHECK(map.max_batch_rows() == most);
}

TEST_CASE("batches of a fixed size") {
  for (int64_t num_rows = 0; num_rows <= 40; ++num_rows) {
    for (int64_t size = 1; size <= 45; ++size) {
      std::vector<int64_t> batch_rows;
      for (int64_t left = num_rows; left > 0; left -= size) {
        batch_rows.push_back(std::min(left, size));
      }
      CheckMap(BatchMap::Lanes({num_rows}, size), batch_rows);
    }
  }
  constexpr int64_t kMost = std::numeric_limits<int64_t>::max();
  const BatchMap one = BatchMap::Lanes({5}, kMost);
  CHECK(one.num_batches() == 1);
  CHECK(one.BatchRows(0) == 5);
  CHECK(BatchMap::Lanes({kMost}, kMost).BatchRows(0) == kMost);
}

TEST_CASE("one batch per chunk that has rows") {
  Draws draws(21);
  CheckMap(BatchMap::PerChunk({}), {});
  CheckMap(BatchMap::PerChunk({0, 0}), {});
  for (int trial = 0; trial < 100; ++trial) {
    std::vector<int64_t> chunk_rows(static_cast<size_t>(draws.Below(20)));
    std::vector<int64_t> batch_rows;
    for (int64_t& rows : chunk_rows) {
      rows = draws.OneIn(3) ? 0 : draws.Below(30);
      if (rows > 0) batch_rows.push_back(rows);
    }
    CheckMap(BatchMap::PerChunk(chunk_rows), batch_rows);
  }
}

TEST_CASE("batch maps that cannot be are refused") {
  CHECK(Throws(ErrorKind::kInvalidArgument, [] { BatchMap::Lanes({-1}, 4); }));
  CHECK(Throws(ErrorKind::kInvalidArgument, [] { BatchMap::Lanes({1}, 0); }));
  CHECK(Throws(ErrorKind::kInvalidArgument, [] { BatchMap::PerChunk({3, -1}); }));
}

TEST_CASE("lanes stand side by side, as long as they have rows") {
  const BatchMap map = BatchMap::Lanes({7, 0, 4}, 9);
  CHECK(map.num_rows() == 11);
  CHECK(map.num_batches() == 3);
  CHECK(map.max_batch_rows() == 6);
  CHECK(map.BatchRows(0) == 6);
  CHECK(map.BatchRows(1) == 4);
  CHECK(map.BatchRows(2) == 1);
  CHECK(map.Locate(5, 0).batch == 1);
  CHECK(map.Locate(5, 0).row == 2);
  CHECK(map.Locate(2, 2).row == 5);
  CHECK(map.Locate(3, 2).batch == 1);
  CHECK(map.Locate(3, 2).row == 3);
  const std::vector<BatchRun> runs = map.Cut(1, 6, 0);
  REQUIRE(runs.size() == 3);
  CHECK(runs[0].num_rows == 2);
  CHECK(runs[1].batch == 1);
  CHECK(runs[1].first_row == 0);
  CHECK(runs[1].num_rows == 3);
  CHECK(runs[2].num_rows == 1);
  CHECK(Throws(ErrorKind::kInvalidArgument, [] { BatchMap::Lanes({1, 1}, 9); }));
}

}  // namespace
}  // namespace torchparquet
