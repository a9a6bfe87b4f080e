#include <algorithm>
#include <cstdint>
#include <cstring>
#include <fstream>
#include <iterator>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/errors.h"
#include "columns/open_column.h"
#include "exact_buffer.h"
#include "files/row_selection.h"
#include "fuzz/inputs.h"
#include "fuzz/steps.h"
#include "fuzz/targets.h"
#include "recipes/nested_reading.h"
#include "recipes/nested_recipe.h"

namespace torchparquet::testing {
namespace {

constexpr int64_t kMaxPageBytes = 1 << 20;
constexpr int64_t kMaxSinkBytes = 1 << 22;
constexpr int64_t kNumRows = 60;

// A file of one column and one row group, whose footer stays as it is.
struct Original {
  NestedColumn column;
  Bytes bytes;
  int64_t footer_begin = 0;
};

Original Write(const NestedRecipe& recipe, Draws& draws) {
  const NestedFile file(recipe, draws);
  std::ifstream stream(file.path(), std::ios::binary);
  Original original{.column = recipe.columns.front(),
                    .bytes = Bytes(std::istreambuf_iterator<char>(stream), {})};
  uint32_t footer_bytes = 0;
  std::memcpy(&footer_bytes, &*(original.bytes.end() - 8), sizeof(footer_bytes));
  original.footer_begin = std::ssize(original.bytes) - 8 - footer_bytes;
  return original;
}

// The same column in every layout of pages.
std::vector<Original> InAllLayouts(const std::vector<NestedColumn>& columns) {
  Draws draws(1);
  std::vector<Original> originals;
  for (const NestedColumn& column : columns) {
    NestedRecipe recipe{
        .columns = {column}, .row_group_rows = {kNumRows}, .has_checksums = false};
    recipe.columns.front().name = "c";
    for (int layout = 0; layout < 8; ++layout) {
      recipe.page_entries = layout % 2 == 0 ? 7 : 2000;
      recipe.compressed = layout == 2 || layout == 5;
      recipe.second_version = layout >= 2 && layout < 4;
      recipe.splits_rows = layout >= 4;
      recipe.bit_packed_levels = layout >= 6;
      originals.push_back(Write(recipe, draws));
    }
  }
  return originals;
}

// Bytes that stay as many, so that the footer still leads to them.
Bytes DamagedInPlace(Draws& draws, const Original& original) {
  const auto begin = original.bytes.begin() + 4;
  const auto end = original.bytes.begin() + original.footer_begin;
  Bytes body = Damaged(draws, Bytes(begin, end));
  body.resize(static_cast<size_t>(end - begin));
  Bytes bytes = original.bytes;
  std::ranges::copy(body, bytes.begin() + 4);
  return bytes;
}

// How an execution reads a column.
struct Sought {
  ColumnRequest request;
  int64_t item_bytes = 1;
  bool has_masks = false;
  NullPolicy nulls = NullPolicy::kFill;

  bool is_jagged() const { return request.num_offsets > 0; }
  int64_t row_values() const { return std::max<int64_t>(1, request.list_length); }
  int64_t row_bytes() const { return row_values() * request.cell_items * item_bytes; }
};

Sought RandomSought(Draws& draws, const NestedColumn& column) {
  Sought sought{.request = column.Request(),
                .item_bytes = column.is_string() ? 1 : column.item_bytes(),
                .has_masks = draws.OneIn(2),
                .nulls = draws.OneIn(4) ? NullPolicy::kError : NullPolicy::kFill};
  sought.request.max_page_bytes = kMaxPageBytes;
  if (column.list_length > 0) {
    sought.request.num_offsets = 0;
    sought.request.list_length = column.list_length;
  }
  return sought;
}

// Takes no more memory than a reader would be given.
class BoundedProgress : public DecodeProgress {
 public:
  BoundedProgress(int64_t num_offsets, std::vector<int64_t> segment_rows)
      : num_offsets_(num_offsets), segment_rows_(std::move(segment_rows)) {}

  JaggedItems BeginItems() override {
    return memory_.Begin(0, segment_rows_.at(items_.size()), num_offsets_, true);
  }
  void EndItems(JaggedItems items) override { items_.push_back(std::move(items)); }
  void SegmentDone() override {}

  const std::vector<JaggedItems>& items() const { return items_; }

 private:
  JaggedMemory memory_{{2.}, kMaxSinkBytes, SinkPool::Make(0, kMaxSinkBytes)};
  const int64_t num_offsets_;
  const std::vector<int64_t> segment_rows_;
  std::vector<JaggedItems> items_;
};

void Append(Flat* rows, const Flat& more) {
  rows->offsets.resize(more.offsets.size(), {0});
  for (size_t level = 0; level < more.offsets.size(); ++level) {
    std::vector<int64_t>& offsets = rows->offsets[level];
    const int64_t first = offsets.back();
    for (size_t i = 1; i < more.offsets[level].size(); ++i) {
      offsets.push_back(first + more.offsets[level][i]);
    }
  }
  const auto append = [](std::vector<uint8_t>* to, const std::vector<uint8_t>& from) {
    to->insert(to->end(), from.begin(), from.end());
  };
  append(&rows->values, more.values);
  append(&rows->item_valid, more.item_valid);
  append(&rows->row_valid, more.row_valid);
}

// Offsets lead from each level to the next, and at last to the values.
void CheckOffsets(const Flat& rows, const Sought& sought, int64_t num_rows) {
  int64_t num_items = num_rows;
  for (const std::vector<int64_t>& offsets : rows.offsets) {
    Require(std::ssize(offsets) == num_items + 1 && offsets.front() == 0 &&
                std::ranges::is_sorted(offsets),
            "offsets that do not lead from item to item");
    num_items = offsets.back();
  }
  Require(std::ssize(rows.values) ==
              num_items * sought.request.cell_items * sought.item_bytes,
          "offsets that do not lead to the values");
  Require(
      std::ranges::all_of(rows.row_valid, [](uint8_t valid) { return valid <= 1; }) &&
          std::ranges::all_of(rows.item_valid, [](uint8_t valid) { return valid <= 1; }),
      "a mask of other bytes than 0 and 1");
}

// Reads rows from `begin` on, as a segment for each count.
Flat ReadSegments(ColumnReader* reader, const Sought& sought, int64_t begin,
                  const std::vector<int64_t>& segment_rows) {
  std::vector<ExactBuffer<int64_t>> starts;
  std::vector<ExactBuffer<uint8_t>> values;
  std::vector<ExactBuffer<uint8_t>> valid;
  std::vector<Segment> segments;
  int64_t num_rows = 0;
  for (const int64_t rows : segment_rows) {
    const auto size = static_cast<size_t>(rows);
    starts.emplace_back(sought.is_jagged() ? size : 0);
    values.emplace_back(
        sought.is_jagged() ? 0 : size * static_cast<size_t>(sought.row_bytes()));
    valid.emplace_back(size * static_cast<size_t>(sought.row_values()));
    segments.push_back({.values = sought.is_jagged()
                                      ? reinterpret_cast<uint8_t*>(starts.back().data())
                                      : values.back().data(),
                        .valid = sought.has_masks ? valid.back().data() : nullptr,
                        .num_rows = rows});
    num_rows += rows;
  }
  const ColumnTarget target{
      .segments = segments,
      .item_bytes = sought.is_jagged() ? 8 : sought.item_bytes,
      .cell_items =
          sought.is_jagged() ? 1 : sought.row_values() * sought.request.cell_items,
      .valid_items = sought.row_values(),
      .has_item_valid = sought.has_masks && sought.is_jagged(),
      .nulls = sought.nulls,
      .fill_bits = kNestedFill};
  BoundedProgress progress(sought.request.num_offsets, segment_rows);
  DecodeScratch scratch;
  reader->Read({.row_group = 0, .begin = begin, .num_rows = num_rows}, target, &scratch,
               &progress);
  Scribble(&scratch);
  Flat rows;
  for (size_t i = 0; i < segments.size(); ++i) {
    Flat segment;
    if (sought.is_jagged()) {
      Require(progress.items().size() == segments.size(), "a segment without its items");
      segment = FlatOf(progress.items()[i], starts[i].Copy(), valid[i].Copy());
      CheckOffsets(segment, sought, segment_rows[i]);
    } else {
      segment.values = values[i].Copy();
      segment.row_valid = valid[i].Copy();
    }
    if (!sought.has_masks) segment.row_valid.clear();
    Append(&rows, segment);
  }
  return rows;
}

std::vector<int64_t> RandomSegments(Draws& draws, int64_t num_rows) {
  std::vector<int64_t> segments;
  for (; num_rows > 0; num_rows -= segments.back()) {
    segments.push_back(
        draws.Between(1, draws.OneIn(3) ? num_rows : std::min<int64_t>(num_rows, 9)));
  }
  return segments;
}

// The outcome of reading. `rows` of a failure are of no use.
struct Outcome {
  std::optional<ErrorKind> error;
  Flat rows;
};

template <typename Read>
Outcome Try(Read&& read) {
  Outcome outcome;
  try {
    outcome.rows = read();
  } catch (const Error& error) {
    using enum ErrorKind;
    constexpr ErrorKind kExpected[] = {kCorruptFile, kNullValue,   kCast,
                                       kListLength,  kOutOfMemory, kValuesTooLarge,
                                       kNotSupported};
    Require(std::ranges::find(kExpected, error.kind()) != std::end(kExpected),
            "an error of an unexpected kind");
    Require(std::string(error.what()) == Printable(error.what()),
            "an unprintable message");
    outcome.error = error.kind();
  }
  return outcome;
}

bool IsOfMemory(const Outcome& outcome) {
  return outcome.error == ErrorKind::kOutOfMemory ||
         outcome.error == ErrorKind::kValuesTooLarge;
}

// Memory runs out sooner where more rows are read at once.
void CheckSame(const Outcome& whole, const Outcome& other) {
  if (IsOfMemory(whole) || IsOfMemory(other)) return;
  Require(whole.error.has_value() == other.error.has_value(),
          "an error only at once, or only in parts");
  Require(whole.error || whole.rows == other.rows, "other rows in parts");
}

// Some rows of a row group.
struct Selected {
  std::vector<RowRun> runs;
  std::vector<uint64_t> bounds;  // of runs, two in a word
  std::vector<kernels::BitWord> words;

  // As runs or as bits.
  std::shared_ptr<const RowSelection> Make(Draws& draws) const {
    return std::make_shared<const RowSelection>(
        draws.OneIn(2) ? RowSelection::OfRuns(bounds) : RowSelection::OfBits(words));
  }
};

Selected RandomRows(Draws& draws) {
  Selected selected;
  selected.words.resize(static_cast<size_t>(kernels::NumWords(kNumRows)));
  const int64_t longest = draws.OneIn(2) ? 3 : kNumRows;
  const int64_t widest = draws.OneIn(2) ? longest : 20;
  for (int64_t row = draws.Below(longest); row < kNumRows;) {
    const int64_t end = std::min(kNumRows, row + draws.Between(1, longest));
    selected.runs.push_back({row, end});
    selected.bounds.push_back(std::bit_cast<uint64_t>(
        std::array<uint32_t, 2>{static_cast<uint32_t>(row), static_cast<uint32_t>(end)}));
    kernels::SetBits(row, end, selected.words.data());
    row = end + draws.Between(1, widest);
  }
  return selected;
}

// Reads some rows as if there were no others, task by task. If the file is sound, they
// are the rows that a reader of all rows delivers, run by run.
void CheckSelected(Draws& draws, const std::shared_ptr<const ParquetFile>& file,
                   const Sought& sought, bool is_sound) {
  const Selected selected = RandomRows(draws);
  const auto rows_of = selected.Make(draws);
  const auto open = [&](const PagePlace& place) {
    return OpenColumn(file, sought.request, 0, place, {}, rows_of);
  };
  const Outcome found = Try([&] {
    Flat rows;
    auto reader = open({});
    for (int64_t row = 0, count = 0; row < rows_of->num_rows(); row += count) {
      const int64_t left = rows_of->num_rows() - row;
      count = draws.OneIn(3) ? left : draws.Between(1, left);
      Append(&rows,
             ReadSegments(reader.get(), sought, row, RandomSegments(draws, count)));
      Require(reader->row() == row + count, "a reader of rows that stands elsewhere");
      if (draws.OneIn(3)) reader = open(reader->place());
    }
    return rows;
  });
  if (!is_sound) return;
  Require(!found.error || IsOfMemory(found), "an error only for some rows");
  if (found.error) return;
  Flat all;
  const auto reader = OpenColumn(file, sought.request, 0, {}, {});
  for (const RowRun& run : selected.runs) {
    Append(&all, ReadSegments(reader.get(), sought, run.begin, {run.num_rows()}));
  }
  Require(all == found.rows, "other rows where some are selected");
}

// Reads all rows at once; once more task by task, as slices do it, some by another reader
// that goes on where the one before stood; and in two parts, the second of which begins
// by passing over the first. Reads some rows too.
bool CheckColumn(Draws& draws, const std::vector<Original>& originals) {
  const Original& original =
      originals[static_cast<size_t>(draws.Below(std::ssize(originals)))];
  ExactBuffer<uint8_t> bytes(DamagedInPlace(draws, original));
  const auto file = std::make_shared<const ParquetFile>(
      PlannedFile{.path = "fuzz", .identity = {}, .memory = bytes.span()});
  const Sought sought = RandomSought(draws, original.column);
  const auto open = [&](const PagePlace& place = {}) {
    return OpenColumn(file, sought.request, 0, place, {});
  };
  const Outcome whole =
      Try([&] { return ReadSegments(open().get(), sought, 0, {kNumRows}); });
  const Outcome in_tasks = Try([&] {
    auto reader = open();
    Flat rows;
    for (int64_t row = 0, count = 0; row < kNumRows; row += count) {
      const int64_t left = kNumRows - row;
      count = draws.OneIn(3) ? left : draws.Between(1, left);
      Append(&rows,
             ReadSegments(reader.get(), sought, row, RandomSegments(draws, count)));
      Require(reader->row() == row + count, "a reader that stands elsewhere");
      if (!draws.OneIn(3)) continue;
      const PagePlace place = reader->place();
      Require(place.first_row <= row + count, "a place after the row");
      reader = open(place);
    }
    return rows;
  });
  CheckSame(whole, in_tasks);
  const int64_t border = draws.Between(1, kNumRows - 1);
  const Outcome in_parts = Try([&] {
    Flat rows = ReadSegments(open().get(), sought, 0, {border});
    Append(&rows, ReadSegments(open().get(), sought, border, {kNumRows - border}));
    return rows;
  });
  CheckSame(whole, in_parts);
  CheckSelected(draws, file, sought, !whole.error && !in_tasks.error);
  return whole.error.has_value();
}

bool FuzzFlat(Draws& draws) {
  using enum ValueKind;
  static const std::vector<Original> originals = [] {
    std::vector<NestedColumn> columns;
    for (const StoredAs stored_as :
         {StoredAs::kPlain, StoredAs::kDictionary, StoredAs::kFallback}) {
      for (const ValueKind kind : {kInt32, kInt64, kFixed}) {
        columns.push_back({.kind = kind, .num_lists = 0, .stored_as = stored_as});
      }
    }
    columns.push_back({.kind = kInt64, .num_lists = 0, .optional = false});
    columns.push_back({.kind = kBool, .num_lists = 0});
    columns.push_back({.kind = kBool, .num_lists = 0, .stored_as = StoredAs::kFallback});
    return InAllLayouts(columns);
  }();
  return CheckColumn(draws, originals);
}

bool FuzzJagged(Draws& draws) {
  using enum ValueKind;
  static const std::vector<Original> originals = [] {
    std::vector<NestedColumn> columns;
    for (const StoredAs stored_as :
         {StoredAs::kPlain, StoredAs::kDictionary, StoredAs::kFallback}) {
      for (int num_lists = 0; num_lists <= 3; ++num_lists) {
        columns.push_back(
            {.kind = kString, .num_lists = num_lists, .stored_as = stored_as});
        if (num_lists == 0) continue;
        columns.push_back(
            {.kind = kInt32, .num_lists = num_lists, .stored_as = stored_as});
      }
      columns.push_back({.kind = kFixed, .num_lists = 1, .stored_as = stored_as});
      columns.push_back({.kind = kInt64, .optional = false, .stored_as = stored_as});
    }
    columns.push_back({.kind = kString, .num_lists = 0, .optional = false});
    columns.push_back({.kind = kInt32, .form = ListForm::kTwoLevel});
    columns.push_back({.kind = kString, .form = ListForm::kBare});
    columns.push_back({.kind = kBool, .num_lists = 2});
    columns.push_back({.kind = kInt32, .null_one_in = 1});
    return InAllLayouts(columns);
  }();
  return CheckColumn(draws, originals);
}

bool FuzzFixedLists(Draws& draws) {
  using enum ValueKind;
  static const std::vector<Original> originals = [] {
    std::vector<NestedColumn> columns;
    for (const StoredAs stored_as :
         {StoredAs::kPlain, StoredAs::kDictionary, StoredAs::kFallback}) {
      columns.push_back({.kind = kInt32, .list_length = 3, .stored_as = stored_as});
      columns.push_back({.kind = kInt64,
                         .optional = false,
                         .null_one_in = 0,
                         .list_length = 4,
                         .stored_as = stored_as});
      columns.push_back({.kind = kFixed, .list_length = 2, .stored_as = stored_as});
    }
    columns.push_back({.kind = kBool, .list_length = 5});
    return InAllLayouts(columns);
  }();
  return CheckColumn(draws, originals);
}

}  // namespace

std::vector<FuzzTarget> ColumnTargets() {
  return {
      {"flat column", &FuzzFlat},
      {"jagged column", &FuzzJagged},
      {"column of fixed lists", &FuzzFixedLists},
  };
}

}  // namespace torchparquet::testing
