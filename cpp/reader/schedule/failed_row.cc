#include "reader/schedule/failed_row.h"

#include <algorithm>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "columns/open_column.h"
#include "pages/decode_scratch.h"

namespace torchparquet {
namespace {

// Counts rows that are read. Their values are lost.
class RowByRow : public DecodeProgress {
 public:
  RowByRow(const TaskContext& context, int64_t num_offsets, bool has_item_valid)
      : context_(context), num_offsets_(num_offsets), has_item_valid_(has_item_valid) {}

  JaggedItems BeginItems() override {
    JaggedItems items;
    items.values = context_.jagged->Acquire(0);
    for (int64_t i = 1; i < num_offsets_; ++i) {
      items.starts.push_back(context_.jagged->Acquire(0));
    }
    if (has_item_valid_) items.valid = context_.jagged->Acquire(0);
    items.num_items.assign(static_cast<size_t>(num_offsets_), 0);
    return items;
  }
  void EndItems(JaggedItems) override {}
  void SegmentDone() override {
    ++num_rows_;
    if (*context_.stopping) throw Error(ErrorKind::kStopped, "the reader was closed");
  }

  int64_t num_rows() const { return num_rows_; }

 private:
  const TaskContext& context_;
  const int64_t num_offsets_;
  const bool has_item_valid_;
  int64_t num_rows_ = 0;
};

// The rows of a column whose values may be refused, as lists if they become sequences.
struct SuspectRows {
  std::unique_ptr<ColumnReader> reader;
  RowRange rows;
  int64_t num_offsets = 0;
};

SuspectRows OpenRows(const TaskContext& context, const Chunk& chunk, int64_t index) {
  const ColumnSpec& column = context.spec->columns[static_cast<size_t>(index)];
  ColumnBuffers buffers;
  if (!column.request.pack) {
    return {OpenTaskReader(context, index, chunk, {}, &buffers), chunk.rows,
            column.request.num_offsets};
  }
  ColumnRequest lists = column.request;
  lists.pack.reset();
  lists.list_length = 0;
  lists.num_offsets = 1;
  const auto file = context.files->Open(chunk.file);
  const auto selection = SelectionOf(context, chunk);
  const int64_t row_group = chunk.rows.row_group;
  const int64_t num_rows =
      selection == nullptr ? file->row_groups()[static_cast<size_t>(row_group)].num_rows
                           : selection->num_rows();
  return {OpenColumn(file, lists, row_group, {}, std::move(buffers), selection,
                     &column.stored, chunk.file),
          {.row_group = row_group, .num_rows = num_rows},
          lists.num_offsets};
}

// Reads rows until one is refused, and returns which as rows are counted in RowRange.
std::optional<int64_t> FirstRefused(const TaskContext& context, const Chunk& chunk,
                                    int64_t index) {
  constexpr int64_t kRowsAtOnce = 4096;
  const SuspectRows suspect = OpenRows(context, chunk, index);
  DecodeScratch scratch;
  ColumnTarget target = TargetOfTask(*context.spec, index);
  target.stride = 1;
  // A row of variable length has an offset.
  const int64_t row_bytes =
      std::max<int64_t>(sizeof(int64_t), target.cell_items * target.item_bytes);
  Segment row{.values = scratch.strip.ReserveItems<uint8_t>(row_bytes), .num_rows = 1};
  if (FieldOfTask(context, index).valid_offset >= 0) {
    row.valid = scratch.strip_valid.ReserveItems<uint8_t>(target.valid_items);
  }
  std::vector<Segment> segments(kRowsAtOnce, row);
  RowByRow progress(context, suspect.num_offsets, target.has_item_valid);
  try {
    while (progress.num_rows() < suspect.rows.num_rows) {
      RowRange rows = suspect.rows;
      rows.begin += progress.num_rows();
      rows.num_rows = std::min(kRowsAtOnce, suspect.rows.end() - rows.begin);
      target.segments = std::span(segments).first(static_cast<size_t>(rows.num_rows));
      suspect.reader->Read(rows, target, &scratch, &progress);
    }
  } catch (const Error& error) {
    if (error.kind() == ErrorKind::kCast) {
      return suspect.rows.begin + progress.num_rows();
    }
  }
  return std::nullopt;
}

// The stored row of a value that was refused, if it can be found.
std::optional<int64_t> RefusedRow(const TaskContext& context, const Chunk& chunk,
                                  int64_t index) {
  try {
    const auto row = FirstRefused(context, chunk, index);
    const auto selection = SelectionOf(context, chunk);
    return row && selection != nullptr ? selection->RowAt(*row) : row;
  } catch (const std::exception&) {
    return std::nullopt;  // the first failure is the one to tell
  }
}

}  // namespace

Error NameRow(const TaskContext& context, const Chunk& chunk, int64_t index,
              const Error& error) {
  std::string text = error.what();
  int64_t row = error.row();
  if (error.kind() == ErrorKind::kCast && row < 0 &&
      KindOfTask(*context.spec, index) == TaskKind::kColumn) {
    row = RefusedRow(context, chunk, index).value_or(-1);
    if (row >= 0) text += ", row " + std::to_string(row) + " of its row group";
  }
  if (row < 0) return error;
  if (!context.spec->rows_are_packed) {
    // Ids of chunks of selections are the row group's.
    const int64_t first = chunk.selection < 0 ? chunk.rows.begin : 0;
    text += ", row.id " + std::to_string(chunk.first_row_id + row - first);
  }
  return Error(error.kind(), text).WithRow(row);
}

}  // namespace torchparquet
