#include <doctest/doctest.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "caught.h"
#include "draws.h"
#include "exact_buffer.h"
#include "reader/parallel_reader.h"
#include "recipes/nested_reading.h"
#include "recipes/nested_recipe.h"
#include "recipes/origin.h"
#include "recipes/reading.h"
#include "recipes/store.h"
#include "recipes/window_cutting.h"
#include "tried.h"

namespace torchparquet {
namespace {

using testing::Draws;
using testing::ExactBuffer;
using testing::Flat;
using testing::Nested;
using testing::NestedColumn;
using testing::NestedFile;
using testing::NestedRecipe;
using testing::StoredAs;
using testing::Throws;
using testing::ValueKind;

constexpr std::chrono::milliseconds kTooLong{60'000};
constexpr uint64_t kFillBits = testing::kNestedFill;

std::vector<NestedColumn> Columns() {
  using enum ValueKind;
  std::vector<NestedColumn> columns{
      {.kind = kString, .num_lists = 0},
      {.kind = kString, .num_lists = 0, .stored_as = StoredAs::kDictionary},
      {.kind = kInt64, .null_one_in = 0},
      {.kind = kInt32, .num_lists = 2, .stored_as = StoredAs::kDictionary},
      {.kind = kString, .num_lists = 2, .stored_as = StoredAs::kFallback},
      {.kind = kInt32, .num_lists = 3},
      {.kind = kFixed}};
  for (size_t i = 0; i < columns.size(); ++i) columns[i].name = "c" + std::to_string(i);
  return columns;
}

// Every column in a field of its own, with masks, and row ids between.
ReaderParts SpecOf(const NestedFile& data, int64_t batch_rows, int64_t num_threads) {
  ReaderParts spec;
  spec.files = std::make_shared<ParquetFiles>(
      std::vector<PlannedFile>{{.path = data.path(), .identity = {}}});
  const auto& groups = data.recipe().row_group_rows;
  for (size_t group = 0; group < groups.size(); ++group) {
    const auto number = static_cast<int64_t>(group);
    spec.share.chunks.push_back(
        {.rows = {number, 0, groups[group]}, .first_row_id = data.FirstRow(number)});
  }
  for (const NestedColumn& column : data.recipe().columns) {
    const ColumnRequest request = column.Request();
    spec.columns.push_back({.request = request,
                            .field = std::ssize(spec.fields),
                            .nulls = NullPolicy::kFill,
                            .fill_bits = kFillBits});
    spec.fields.push_back({.item_bytes = 8,
                           .has_valid = true,
                           .num_offsets = request.num_offsets,
                           .has_item_valid = column.num_lists > 0,
                           .row_bytes = 3});
    if (spec.row_id_field < 0) {
      spec.row_id_field = std::ssize(spec.fields);
      spec.fields.push_back({.item_bytes = 8});
    }
  }
  spec.batch_rows = batch_rows;
  spec.num_threads = num_threads;
  return spec;
}

int64_t SlabBytes(const ReaderParts& spec) {
  int64_t capacity = spec.batch_rows;
  for (const Chunk& chunk : spec.share.chunks) {
    if (spec.batch_rows == 0) capacity = std::max(capacity, chunk.rows.num_rows);
  }
  for (const int64_t size : spec.batch_sizes) capacity = std::max(capacity, size);
  return MakeBatchLayout(spec.fields, capacity).slab_bytes;
}

// True if a batch equals the rows of the file that its row ids name.
bool IsBatch(const NestedFile& data, const ReaderParts& spec, const BatchLayout& layout,
             const BatchRing::TakeResult& batch) {
  const uint8_t* slab = batch.memory.data;
  const auto num_rows = static_cast<size_t>(batch.num_rows);
  std::vector<int64_t> row_ids(num_rows);
  const FieldPlace& ids = layout.fields[static_cast<size_t>(spec.row_id_field)];
  std::memcpy(row_ids.data(), slab + ids.values_offset, 8 * num_rows);
  bool is_right = std::ssize(batch.items) == std::ssize(spec.columns);
  for (size_t i = 0; is_right && i < spec.columns.size(); ++i) {
    const NestedColumn& column = data.recipe().columns[i];
    const FieldPlace& place = layout.fields[static_cast<size_t>(spec.columns[i].field)];
    std::vector<const Nested*> rows;
    for (const int64_t row : row_ids) {
      rows.push_back(&data.rows(i)[static_cast<size_t>(row)]);
    }
    Flat expected = testing::Flatten(column, std::move(rows), kFillBits);
    if (column.num_lists == 0) expected.item_valid.clear();
    const JaggedItems& items = batch.items[static_cast<size_t>(place.jagged_index)];
    Flat found;
    found.offsets.emplace_back(num_rows + 1);
    std::memcpy(found.offsets[0].data(), slab + place.values_offset, 8 * (num_rows + 1));
    for (const SinkPool::Lease& starts : items.starts) {
      found.offsets.push_back(testing::StartsOf(*starts.operator->()));
    }
    found.values = testing::BytesOf(*items.values.operator->());
    found.item_valid = testing::BytesOf(*items.valid.operator->());
    found.row_valid.assign(slab + place.valid_offset,
                           slab + place.valid_offset + num_rows);
    is_right = found == expected;
    CHECK(items.num_items.size() == expected.offsets.size());
  }
  return is_right;
}

// Reads all of it, and checks every batch and the order of rows.
void CheckAll(const NestedFile& data, const ReaderParts& spec, Draws& draws,
              ReaderMemory* memory = nullptr) {
  CAPTURE(spec.batch_rows);
  CAPTURE(spec.num_threads);
  CAPTURE(spec.max_memory_bytes);
  CAPTURE(spec.lent_slabs);
  ParallelReader reader(ReaderSpec{spec}, memory == nullptr ? ReaderMemory() : *memory);
  if (memory != nullptr) *memory = reader.memory();
  std::vector<ExactBuffer<uint8_t>> lent;
  for (int64_t token = 0; spec.lent_slabs && token < reader.max_slabs(); ++token) {
    lent.emplace_back(static_cast<size_t>(reader.layout().slab_bytes));
    reader.Lend(lent.back().data(), token);
  }
  std::vector<int64_t> expected_ids;
  for (const testing::PlannedRow& row : testing::PlannedRows(spec)) {
    expected_ids.push_back(row.row_id);
  }
  std::vector<int64_t> row_ids;
  std::vector<BatchRing::TakeResult> kept;
  int64_t num_wrong = 0;
  while (true) {
    BatchRing::TakeResult batch = reader.Next(kTooLong);
    REQUIRE(batch.status != BatchRing::TakeStatus::kTimedOut);
    if (batch.status == BatchRing::TakeStatus::kEnded) break;
    num_wrong += !IsBatch(data, spec, reader.layout(), batch);
    const FieldPlace& ids =
        reader.layout().fields[static_cast<size_t>(spec.row_id_field)];
    const size_t first = row_ids.size();
    row_ids.resize(first + static_cast<size_t>(batch.num_rows));
    std::memcpy(row_ids.data() + first, batch.memory.data + ids.values_offset,
                8 * static_cast<size_t>(batch.num_rows));
    if (spec.lent_slabs) {
      std::memset(batch.memory.data, 0xEE,
                  static_cast<size_t>(reader.layout().slab_bytes));
      reader.Lend(batch.memory.data, batch.memory.lent_token);
    } else if (draws.OneIn(3)) {
      kept.push_back(std::move(batch));
    }
    if (draws.OneIn(3)) kept.clear();
  }
  CHECK(num_wrong == 0);
  CHECK(row_ids == expected_ids);
}

NestedRecipe Recipe(Draws& draws) {
  return {.columns = Columns(),
          .row_group_rows = {90, 1, 130, 30},
          .page_entries = draws.Between(8, 200),
          .second_version = draws.OneIn(2),
          .compressed = draws.OneIn(2),
          .splits_rows = draws.OneIn(2),
          .bit_packed_levels = draws.OneIn(4)};
}

TEST_CASE("batches of all sizes, whatever the threads and the memory") {
  Draws draws(testing::SeedTried(330));
  for (int64_t trial = 0; trial < testing::NumTried(2); ++trial) {
    const NestedFile data(Recipe(draws), draws);
    ReaderMemory memory;  // from reader to reader
    for (const int64_t batch_rows : {3, 64, 130, 600, 0}) {
      for (const int64_t num_threads : testing::Tried({1, 4})) {
        ReaderParts spec = SpecOf(data, batch_rows, num_threads);
        const int64_t num_slabs = draws.OneIn(2) ? draws.Between(2, 12) : 1000;
        spec.max_memory_bytes =
            num_slabs * SlabBytes(spec) + (draws.OneIn(2) ? 0 : 1 << 20);
        spec.max_memory_bytes = std::max(spec.max_memory_bytes, int64_t{1} << 18);
        spec.lent_slabs = draws.OneIn(3);
        CheckAll(data, spec, draws, &memory);
      }
    }
  }
}

TEST_CASE("windows of rows of different lengths, whatever the threads and the memory") {
  Draws draws(testing::SeedTried(341));
  for (int64_t trial = 0; trial < testing::NumTried(15); ++trial) {
    const NestedFile data(Recipe(draws), draws);
    ReaderParts spec = SpecOf(data, draws.Between(0, 200), draws.Between(1, 4));
    const std::vector<Chunk> whole = spec.share.chunks;
    for (int64_t i = draws.Between(0, 5); i > 0; --i) {
      Chunk chunk = whole[draws.OneIn(3) ? 2 : 0];
      const int64_t begin = draws.Between(0, chunk.rows.num_rows - 1);
      chunk.rows.num_rows = draws.Between(0, chunk.rows.num_rows - begin);
      chunk.rows.begin = begin;
      chunk.first_row_id += begin;
      spec.share.chunks.push_back(chunk);
    }
    testing::CutToWindows(draws, &spec.share, draws.OneIn(2));
    int64_t most = 0;  // rows of a window
    for (const Window& window : spec.share.windows) {
      most = std::max(most, window.end - window.begin);
    }
    if (spec.batch_rows == 0) {
      for (int64_t left = NumRows(spec.share); left > 0;) {
        spec.batch_sizes.push_back(std::min(left, draws.Between(0, 100)));
        left -= spec.batch_sizes.back();
      }
    }
    // Either much, or hardly more than one window's slabs or items.
    if (draws.OneIn(2)) {
      const int64_t num_batches =
          std::min(NumRows(spec.share), 2 + most / std::max<int64_t>(1, spec.batch_rows));
      spec.max_memory_bytes = std::max(int64_t{1} << 20, num_batches * SlabBytes(spec));
    }
    spec.lent_slabs = draws.OneIn(3);
    CheckAll(data, spec, draws);
  }
}

TEST_CASE("windows whose items have no room beside those before wait for them") {
  Draws draws(343);
  NestedRecipe recipe = Recipe(draws);
  recipe.row_group_rows.assign(12, 100);
  const NestedFile data(recipe, draws);
  ReaderParts spec = SpecOf(data, 30, 1);
  for (uint64_t key = 0; key < 12; ++key) {
    spec.share.windows.push_back({.num_rows = 100, .key = key, .end = 100});
  }
  // The least that holds any window alone.
  const auto fits = [&] {
    ParallelReader reader(ReaderSpec{spec});
    return !testing::Caught([&] {
      while (reader.Next(kTooLong).status == BatchRing::TakeStatus::kTaken) {
      }
    });
  };
  const int64_t step = testing::ScheduleSeed() == 0 ? 5'000 : 25'000;
  for (spec.max_memory_bytes = 50'000; !fits();) spec.max_memory_bytes += step;
  for (const int64_t more : testing::Tried({0, 20'000, 100'000})) {
    spec.max_memory_bytes += more;
    for (const int64_t num_threads : testing::Tried({1, 2, 3, 4, 64})) {
      spec.num_threads = num_threads;
      CheckAll(data, spec, draws);
    }
  }
}

TEST_CASE("shares read at once whose items have no room beside each other") {
  Draws draws(344);
  NestedRecipe recipe = Recipe(draws);
  recipe.row_group_rows.assign(12, 60);
  const NestedFile data(recipe, draws);
  for (const bool has_windows : testing::Tried({false, true})) {
    ReaderParts spec = SpecOf(data, 18, 1);
    const std::vector<Chunk> chunks = spec.share.chunks;
    for (size_t lane = 0; lane < 3; ++lane) {
      Share share{.rank = static_cast<int64_t>(lane), .world_size = 3, .chunks = {}};
      for (size_t i = lane; i < chunks.size(); i += 3) {
        share.chunks.push_back(chunks[i]);
        if (has_windows) share.windows.push_back({60, draws.Bits(), 0, 60});
      }
      if (lane == 0) {
        spec.share = share;
      } else {
        spec.beside.push_back(share);
      }
    }
    // For batches that hold nothing but what they lack, more than what the rest holds.
    for (const int64_t max_memory_bytes : testing::Tried({150'000, 170'000, 400'000})) {
      spec.max_memory_bytes = max_memory_bytes;
      for (const int64_t num_threads : testing::Tried({1, 2, 3, 4, 64})) {
        spec.num_threads = num_threads;
        CheckAll(data, spec, draws);
      }
    }
  }
}

TEST_CASE("a window whose items are beyond max_memory fails in the same way") {
  Draws draws(342);
  NestedRecipe recipe = Recipe(draws);
  recipe.row_group_rows = {100, 300, 500, 400};
  const NestedFile data(recipe, draws);
  std::vector<std::string> messages;
  for (const int64_t num_threads : {1, 2, 4, 4, 4}) {
    ReaderParts spec = SpecOf(data, 8, num_threads);
    spec.fields[static_cast<size_t>(spec.columns[4].field)].row_bytes = 5;
    spec.share.windows = {{.num_rows = 100, .key = 5, .end = 16},
                          {.num_rows = 1200, .key = 6, .end = 16}};
    spec.max_memory_bytes = 100'000;
    ParallelReader reader(ReaderSpec{spec});
    for (int i = 0; i < 2; ++i) {
      CHECK(reader.Next(kTooLong).status == BatchRing::TakeStatus::kTaken);
    }
    const auto error = testing::Caught([&] { reader.Next(kTooLong); });
    REQUIRE(error);
    CHECK(error->kind() == ErrorKind::kValuesTooLarge);
    messages.push_back(error->what());
    CHECK(messages.back() == messages.front());
    CHECK(testing::Mentions(*error, "c4"));
    CHECK(testing::Mentions(*error, "shuffle_window"));
  }
}

TEST_CASE("shares of any row ranges, in any order") {
  Draws draws(testing::SeedTried(331));
  for (int64_t trial = 0; trial < testing::NumTried(6); ++trial) {
    const NestedFile data(Recipe(draws), draws);
    ReaderParts spec = SpecOf(data, draws.Between(1, 90), draws.Between(1, 4));
    std::vector<Chunk> chunks;
    for (int64_t left = draws.Between(1, 8); left > 0; --left) {
      Chunk chunk = spec.share.chunks[static_cast<size_t>(draws.Below(4))];
      const int64_t begin = draws.Below(chunk.rows.num_rows);
      chunk.rows.num_rows = draws.Between(0, chunk.rows.num_rows - begin);
      chunk.rows.begin = begin;
      chunk.first_row_id += begin;
      chunks.push_back(chunk);
    }
    spec.share.chunks = chunks;
    // Few slabs, so that chunks are cut within pages.
    spec.max_memory_bytes =
        std::max(draws.Between(2, 9) * SlabBytes(spec), int64_t{1} << 18);
    CheckAll(data, spec, draws);
  }
}

// Rows whose items take far more memory than their slabs.
NestedRecipe LongRecipe() {
  return {.columns = {{.name = "long",
                       .kind = ValueKind::kInt64,
                       .null_one_in = 0,
                       .list_length = 500}},
          .row_group_rows = {40, 60},
          .page_entries = 1700};
}

TEST_CASE("items that take all the memory are read batch by batch") {
  Draws draws(332);
  const NestedFile data(LongRecipe(), draws);
  for (const int64_t num_threads : testing::Tried({1, 3})) {
    ReaderParts spec = SpecOf(data, 10, num_threads);
    spec.fields[0].row_bytes = 0;  // so that all slabs fit, and a row group is one slice
    spec.max_memory_bytes = 175'000;
    CheckAll(data, spec, draws);
  }
}

TEST_CASE("batches are read whatever footers claim that rows have") {
  Draws draws(337);
  const NestedFile data(LongRecipe(), draws);
  for (const double row_bytes : testing::Tried({0., 4'000., 1e18, 1e300})) {
    for (const int64_t num_threads : testing::Tried({1, 3})) {
      ReaderParts spec = SpecOf(data, 10, num_threads);
      spec.fields[0].row_bytes = row_bytes;
      spec.max_memory_bytes = 175'000;
      CheckAll(data, spec, draws);
    }
  }
}

TEST_CASE("a chunk whose items alone are beyond max_memory fails as its window does") {
  Draws draws(345);
  const NestedFile data(LongRecipe(), draws);
  ReaderParts spec = SpecOf(data, 10, 2);
  spec.fields[0].row_bytes = 5;
  spec.share.windows = {{.num_rows = 100, .key = 5, .end = 100}};
  spec.max_memory_bytes = 133'000;
  ParallelReader reader(ReaderSpec{spec});
  const auto error = testing::Caught([&] { reader.Next(kTooLong); });
  REQUIRE(error);
  CHECK(error->kind() == ErrorKind::kValuesTooLarge);
  CHECK(testing::Mentions(*error, "column 'long'"));
  CHECK(testing::Mentions(*error, "shuffle_window"));
}

TEST_CASE("a failure of its own comes before that a window is too large") {
  Draws draws(346);
  NestedRecipe recipe = LongRecipe();
  recipe.columns.push_back({.name = "n", .null_one_in = 0});
  auto rows = testing::RandomRows(draws, recipe);
  rows[1][95] = {.is_null = true};
  const NestedFile data(recipe, rows);
  for (const int64_t max_memory_bytes : testing::Tried({133'000, 300'000})) {
    for (const int64_t num_threads : testing::Tried({1, 2, 4, 64})) {
      ReaderParts spec = SpecOf(data, 10, num_threads);
      for (FieldSpec& field : spec.fields) field.row_bytes = 5;
      spec.columns[1].nulls = NullPolicy::kError;
      spec.fields[1].has_valid = false;
      spec.share.windows = {{.num_rows = 100, .key = 5, .end = 100}};
      spec.max_memory_bytes = max_memory_bytes;
      ParallelReader reader(ReaderSpec{spec});
      const auto error = testing::Caught([&] { reader.Next(kTooLong); });
      REQUIRE(error);
      CHECK(error->kind() == ErrorKind::kNullValue);
      CHECK(testing::Mentions(*error, "row 55 "));
    }
  }
}

TEST_CASE("a batch whose items are too much fails in its place") {
  Draws draws(333);
  const NestedFile data(LongRecipe(), draws);
  std::vector<std::string> messages;
  for (const int64_t num_threads : {1, 2, 4, 4}) {
    // The first batch has rows of both row groups, each part of which would fit: 40 and
    // 30 rows are more than 65.
    ReaderParts spec = SpecOf(data, 70, num_threads);
    spec.max_memory_bytes = 4'000 * 65;
    ParallelReader reader(ReaderSpec{spec});
    for (int i = 0; i < 2; ++i) {
      const auto error = testing::Caught([&] { reader.Next(kTooLong); });
      REQUIRE(error);
      CHECK(error->kind() == ErrorKind::kValuesTooLarge);
      messages.push_back(error->what());
      CHECK(messages.back() == messages.front());
      CHECK(testing::Mentions(*error, "column 'long'"));
      CHECK(testing::Mentions(*error, "batch_size"));
    }
  }
}

TEST_CASE(
    "a batch that is too large fails after errors of its own and before later ones") {
  NestedRecipe recipe = LongRecipe();
  recipe.columns.push_back({.name = "n", .null_one_in = 0});
  for (const size_t null_row : {5, 95}) {
    Draws draws(349);
    auto rows = testing::RandomRows(draws, recipe);
    rows[1][null_row] = {.is_null = true};
    const NestedFile data(recipe, rows);
    for (const int64_t num_threads : {1, 2, 4}) {
      ReaderParts spec = SpecOf(data, 70, num_threads);
      spec.columns[1].nulls = NullPolicy::kError;
      spec.fields[2].has_valid = false;
      spec.max_memory_bytes = 4'000 * 65;
      ParallelReader reader(ReaderSpec{spec});
      const auto error = testing::Caught([&] { reader.Next(kTooLong); });
      REQUIRE(error);
      CHECK(error->kind() ==
            (null_row < 70 ? ErrorKind::kNullValue : ErrorKind::kValuesTooLarge));
    }
  }
}

// Takes so many batches, and then twice the error of a null in a row.
void CheckNullAfter(int num_batches, const std::string& row, ParallelReader* reader) {
  for (int i = 0; i < num_batches; ++i) {
    REQUIRE(reader->Next(kTooLong).status == BatchRing::TakeStatus::kTaken);
  }
  for (int i = 0; i < 2; ++i) {
    const auto error = testing::Caught([&] { reader->Next(kTooLong); });
    REQUIRE(error);
    CHECK(error->kind() == ErrorKind::kNullValue);
    CHECK(testing::Mentions(*error, row));
  }
}

TEST_CASE("an error is raised after the batches before it") {
  Draws draws(334);
  NestedRecipe recipe{.columns = {{.name = "n", .null_one_in = 0}},
                      .row_group_rows = {300}};
  auto rows = testing::RandomRows(draws, recipe);
  rows[0][205] = {.is_null = true};
  const NestedFile data(recipe, rows);
  for (const int64_t num_threads : testing::Tried({1, 3})) {
    ReaderParts spec = SpecOf(data, 20, num_threads);
    spec.columns[0].nulls = NullPolicy::kError;
    spec.fields[0].has_valid = false;
    ParallelReader reader(ReaderSpec{spec});
    CheckNullAfter(10, "row 205 ", &reader);
  }
}

TEST_CASE("an error of one of several shares is raised after the batches before it") {
  Draws draws(347);
  NestedRecipe recipe{.columns = {{.name = "n", .null_one_in = 0}},
                      .row_group_rows = {300, 300}};
  auto rows = testing::RandomRows(draws, recipe);
  // In batch 10, and in batch 7 of a share whose rows come after those of the first.
  rows[0][205] = {.is_null = true};
  rows[0][300 + 145] = {.is_null = true};
  const NestedFile data(recipe, rows);
  for (const int64_t num_threads : testing::Tried({1, 2, 4, 64})) {
    ReaderParts spec = SpecOf(data, 40, num_threads);
    spec.columns[0].nulls = NullPolicy::kError;
    spec.fields[0].has_valid = false;
    spec.beside = {spec.share};
    spec.share.chunks.pop_back();
    spec.beside[0].chunks.erase(spec.beside[0].chunks.begin());
    spec.beside[0].rank = 1;
    spec.share.world_size = spec.beside[0].world_size = 2;
    ParallelReader reader(ReaderSpec{spec});
    CheckNullAfter(7, "row 145 ", &reader);
  }
}

TEST_CASE("no error comes before batches that wait for bytes while memory is full") {
  Draws draws(348);
  NestedRecipe recipe{
      .columns = {{.name = "late", .kind = ValueKind::kInt64, .null_one_in = 0},
                  {.name = "unread", .kind = ValueKind::kInt64, .list_length = 3'000},
                  {.name = "long",
                   .kind = ValueKind::kInt64,
                   .null_one_in = 0,
                   .list_length = 500,
                   .stored_as = StoredAs::kDictionary},
                  {.name = "n", .kind = ValueKind::kInt64, .num_lists = 0}},
      .row_group_rows = {60},
      .page_entries = 1700,
      .compressed = false};
  recipe.columns.back().null_one_in = 0;
  auto rows = testing::RandomRows(draws, recipe);
  rows[3][35] = {.is_null = true};
  const NestedFile data(recipe, rows);
  testing::Gate late;
  // The file begins with the first column.
  const auto store = std::make_shared<testing::Store>(
      testing::Store::Options{.fault = [&](const Fetch& fetch) -> std::optional<Error> {
        if (fetch.range().offset < 1'000) late.Wait();
        return std::nullopt;
      }});
  ReaderParts spec = SpecOf(data, 10, 2);
  spec.files = std::make_shared<ParquetFiles>(testing::PlannedIn({data.path()}, store));
  spec.columns.erase(spec.columns.begin() + 1);
  spec.fields.erase(spec.fields.begin() + 2);
  for (ColumnSpec& column : spec.columns) column.field -= column.field > 2;
  spec.columns.back().nulls = NullPolicy::kError;
  spec.fields.back().has_valid = false;
  for (FieldSpec& field : spec.fields) field.row_bytes = 0;
  spec.max_memory_bytes = 200'000;
  ParallelReader reader(ReaderSpec{spec});
  CHECK(reader.Next(std::chrono::milliseconds(200)).status ==
        BatchRing::TakeStatus::kTimedOut);
  late.Open();
  CheckNullAfter(3, "row 35 ", &reader);
}

TEST_CASE("a reader may end at any time, and batches outlive it") {
  Draws draws(testing::SeedTried(335));
  const NestedFile data(Recipe(draws), draws);
  for (int64_t trial = 0; trial < testing::NumTried(6); ++trial) {
    const ReaderParts spec = SpecOf(data, 13, 3);
    std::vector<BatchRing::TakeResult> kept;
    BatchLayout layout;
    {
      ParallelReader reader(ReaderSpec{spec});
      layout = reader.layout();
      for (int64_t left = draws.Below(12); left > 0; --left) {
        kept.push_back(reader.Next(kTooLong));
      }
    }
    for (const BatchRing::TakeResult& batch : kept) {
      CHECK(IsBatch(data, spec, layout, batch));
    }
  }
}

TEST_CASE("lists of one length that a file lacks are their default, and valid") {
  Draws draws(338);
  const NestedFile data({.columns = {{.name = "a"}}, .row_group_rows = {90}}, draws);
  ReaderParts spec = SpecOf(data, 20, 2);
  spec.columns.push_back({.request = {.path = "absent",
                                      .kinds = {"list<int32>"},
                                      .dtype = kernels::Dtype::kInt32,
                                      .list_length = 3,
                                      .default_bits = 77},
                          .field = std::ssize(spec.fields),
                          .nulls = NullPolicy::kFill});
  spec.fields.push_back(
      {.item_bytes = 4, .cell_items = 3, .has_valid = true, .valid_items = 3});
  spec.lent_slabs = true;
  ParallelReader reader(ReaderSpec{spec});
  std::vector<ExactBuffer<uint8_t>> lent;
  for (int64_t token = 0; token < 5; ++token) {
    lent.emplace_back(static_cast<size_t>(reader.layout().slab_bytes));
    std::ranges::fill(lent.back().span(), uint8_t{0xDB});
    reader.Lend(lent.back().data(), token);
  }
  const FieldPlace& place = reader.layout().fields.back();
  int64_t num_rows = 0;
  while (num_rows < 90) {
    const auto batch = reader.Next(kTooLong);
    REQUIRE(batch.status == BatchRing::TakeStatus::kTaken);
    const auto num_items = static_cast<size_t>(3 * batch.num_rows);
    std::vector<int32_t> values(num_items);
    std::memcpy(values.data(), batch.memory.data + place.values_offset, 4 * num_items);
    CHECK(values == std::vector<int32_t>(num_items, 77));
    const uint8_t* valid = batch.memory.data + place.valid_offset;
    CHECK(std::vector<uint8_t>(valid, valid + num_items) ==
          std::vector<uint8_t>(num_items, 1));
    num_rows += batch.num_rows;
  }
}

TEST_CASE("fields of variable length that contradict themselves are refused") {
  Draws draws(336);
  const NestedFile data(
      {.columns = {{.name = "a"}, {.name = "b"}}, .row_group_rows = {9}}, draws);
  const auto refused = [&](auto&& change) {
    ReaderParts spec = SpecOf(data, 3, 1);
    change(spec);
    return Throws(ErrorKind::kInvalidArgument,
                  [&] { const ParallelReader reader(ReaderSpec{spec}); });
  };
  CHECK_FALSE(refused([](ReaderParts&) {}));
  CHECK(refused([](ReaderParts& spec) { spec.columns[0].request.num_offsets = 0; }));
  CHECK(refused([](ReaderParts& spec) { spec.columns[0].request.num_offsets = 2; }));
  CHECK(refused([](ReaderParts& spec) { spec.fields[0].num_offsets = 0; }));
  CHECK(refused([](ReaderParts& spec) { spec.columns[1].field = 0; }));
  CHECK(refused([](ReaderParts& spec) { spec.columns.pop_back(); }));
  CHECK(refused([](ReaderParts& spec) { spec.columns[0].request.default_bits = 1; }));
  CHECK(refused([](ReaderParts& spec) { spec.columns[0].file_bits = {1}; }));
  CHECK(refused([](ReaderParts& spec) { spec.row_id_field = 0; }));
  CHECK(refused([](ReaderParts& spec) { spec.fields[0].item_bytes = 4; }));
}

}  // namespace
}  // namespace torchparquet
