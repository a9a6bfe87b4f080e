#include "reader/schedule/task_context.h"

#include <algorithm>
#include <cstring>
#include <numeric>
#include <span>
#include <utility>

#include "base/errors.h"
#include "columns/open_column.h"

namespace torchparquet {

TaskKind KindOfTask(const ReaderSpec& spec, int64_t index) {
  const auto num_columns = static_cast<int64_t>(spec.columns.size());
  if (index < num_columns) return TaskKind::kColumn;
  const bool is_first_generated = index == num_columns;
  return is_first_generated && spec.row_id_field >= 0 ? TaskKind::kRowIds
                                                      : TaskKind::kRowValid;
}

const FieldPlace& FieldOfTask(const TaskContext& context, int64_t index) {
  const ReaderSpec& spec = *context.spec;
  int64_t field = spec.row_valid_field;
  switch (KindOfTask(spec, index)) {
    case TaskKind::kColumn:
      field = spec.columns[static_cast<size_t>(index)].field;
      break;
    case TaskKind::kRowIds:
      field = spec.row_id_field;
      break;
    case TaskKind::kRowValid:
      break;
  }
  return context.layout->fields[static_cast<size_t>(field)];
}

int64_t ElementOfTask(const ReaderSpec& spec, int64_t index) {
  if (KindOfTask(spec, index) != TaskKind::kColumn) return 0;
  return spec.columns[static_cast<size_t>(index)].element;
}

std::shared_ptr<const RowSelection> SelectionOf(const TaskContext& context,
                                                const Chunk& chunk) {
  if (chunk.selection < 0) return nullptr;
  return context.spec->selections->Of(chunk.selection);
}

std::shared_ptr<const RowSelection> IdSelectionOf(const TaskContext& context,
                                                  const Chunk& chunk) {
  return context.spec->rows_are_packed ? nullptr : SelectionOf(context, chunk);
}

namespace {

void WriteRowIds(const Chunk& chunk, const RowSelection* selection, int64_t first_row,
                 std::span<int64_t> out) {
  if (selection == nullptr) {
    // Ids of chunks of selections are the row group's.
    const int64_t begin = chunk.selection < 0 ? 0 : chunk.rows.begin;
    std::iota(out.begin(), out.end(), chunk.first_row_id + begin + first_row);
    return;
  }
  int64_t row = out.empty() ? 0 : selection->RowAt(chunk.rows.begin + first_row);
  size_t near = 0;
  while (!out.empty()) {
    const RowRun run = selection->NextRun(row, &near);
    const auto count = std::min(out.size(), static_cast<size_t>(run.num_rows()));
    const auto ids = out.first(count);
    std::iota(ids.begin(), ids.end(), chunk.first_row_id + run.begin);
    out = out.subspan(count);
    row = run.end;
  }
}

ReadStep StepOf(const Chunk& chunk) {
  return {.file = chunk.file,
          .row_group = chunk.rows.row_group,
          .num_rows = chunk.rows.num_rows,
          .begin = chunk.planned_begin};
}

}  // namespace

void WriteGenerated(TaskKind kind, const Chunk& chunk, const RowSelection* selection,
                    int64_t first_row, const Segment& segment) {
  if (kind == TaskKind::kRowIds) {
    // Fields and strips are aligned to 64 bytes.
    auto* row_ids = reinterpret_cast<int64_t*>(segment.values);
    WriteRowIds(chunk, selection, first_row,
                {row_ids, static_cast<size_t>(segment.num_rows)});
  } else {
    std::memset(segment.values, chunk.valid, static_cast<size_t>(segment.num_rows));
  }
}

ReadStep StepWithRows(const ReaderSpec& spec, const Chunk& chunk) {
  ReadStep step = StepOf(chunk);
  const RowRange& rows = chunk.rows;
  if (chunk.selection >= 0) step.selection = spec.selections->Of(chunk.selection);
  // Any document may be in a sequence.
  if (rows.num_rows == 0 || spec.rows_are_packed) return step;
  step.rows = step.selection == nullptr
                  ? RowRun{rows.begin, rows.end()}
                  : RowRun{step.selection->RowAt(rows.begin),
                           step.selection->RowAt(rows.end() - 1) + 1};
  return step;
}

bool MayAwaitBytes(const TaskContext& context, int64_t num_running) {
  if (context.prefetcher == nullptr) return true;
  // In this order: room is told of before the end of the fetch that makes it, and used by
  // a call that ends after its fetches have begun.
  Prefetcher& prefetcher = *context.prefetcher;
  return num_running == 0 && prefetcher.is_idle() && !prefetcher.may_advance() &&
         prefetcher.is_idle();
}

std::vector<RemoteBlocks::Handle> OpenHandles(const TaskContext& context,
                                              const Chunk& chunk) {
  if (context.prefetcher == nullptr) return {};
  return context.prefetcher->Open(StepOf(chunk));
}

std::unique_ptr<ColumnReader> OpenTaskReader(const TaskContext& context, int64_t index,
                                             const Chunk& chunk, const PagePlace& place,
                                             ColumnBuffers* buffers) {
  const ColumnSpec& column = context.spec->columns[static_cast<size_t>(index)];
  const bool is_key = !column.file_bits.empty();
  if (is_key) {
    const auto bits = column.file_bits[static_cast<size_t>(chunk.file)];
    if (bits) return OpenConstant(column.request, *bits);
  }
  std::shared_ptr<const ParquetFile> file;
  try {
    file = context.files->Open(chunk.file);
  } catch (...) {
    throw CurrentErrorAt({.path = context.files->path(chunk.file)});
  }
  ColumnRequest request = column.request;
  const int64_t row_group = chunk.rows.row_group;
  const std::vector<RowGroupFacts>& groups = file->row_groups();
  request.reads_whole_row_group =
      chunk.selection < 0 && row_group < std::ssize(groups) &&
      chunk.planned_rows == groups[static_cast<size_t>(row_group)].num_rows;
  if (is_key) {  // No file stores it.
    request.default_bits.reset();
    request.missing_is_null = true;
  }
  if (request.pack) request.pack->planned_sequences = chunk.row_group_sequences;
  return OpenColumn(file, request, row_group, place, std::move(*buffers),
                    SelectionOf(context, chunk), &column.stored, chunk.file);
}

ColumnTarget TargetOfTask(const ReaderSpec& spec, int64_t index) {
  const ColumnSpec& column = spec.columns[static_cast<size_t>(index)];
  const FieldSpec& field = spec.fields[static_cast<size_t>(column.field)];
  return {.segments = {},
          .stride = field.width,
          .item_bytes = field.item_bytes,
          .cell_items = field.cell_items,
          .valid_items = field.valid_items,
          .has_item_valid = field.has_item_valid,
          .nulls = column.nulls,
          .fill_bits = column.fill_bits};
}

}  // namespace torchparquet
