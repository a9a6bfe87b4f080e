#include "slice_tasks.h"

#include <cstring>
#include <utility>

#include "errors.h"
#include "open_column.h"

namespace torchparquet {
namespace {

void FillRowIds(int64_t first_row_id, std::span<const Segment> segments) {
  int64_t row_id = first_row_id;
  for (const Segment& segment : segments) {
    // Fields are aligned to 64 bytes.
    auto* out = reinterpret_cast<int64_t*>(segment.values);
    for (int64_t i = 0; i < segment.num_rows; ++i) out[i] = row_id++;
  }
}

}  // namespace

// Counts a task's cells down, batch after batch.
class SliceTaskRunner::Progress : public DecodeProgress {
 public:
  Progress(const Parts& parts, const OpenSlice& slice, const FieldPlace& field,
           int64_t* num_spans_done)
      : parts_(parts), slice_(slice), field_(field), num_spans_done_(num_spans_done) {}

  JaggedItems BeginItems() override {
    return parts_.jagged->Begin(field_.jagged_index, span().num_rows, field_.num_offsets);
  }
  void EndItems(JaggedItems items) override {
    JaggedPart part{.first_row = span().first_row,
                    .num_rows = span().num_rows,
                    .items = std::move(items)};
    parts_.jagged->Learn(field_.jagged_index, part);
    span().batch->AddPart(field_.jagged_index, std::move(part));
  }

  void SegmentDone() override {
    const OpenSlice::Span& done = span();
    ++*num_spans_done_;
    parts_.ring->CountDown(*done.batch, done.num_rows);
    if (*parts_.stopping) throw Error(ErrorKind::kStopped, "the reader was closed");
  }

 private:
  const OpenSlice::Span& span() const {
    return slice_.spans[static_cast<size_t>(*num_spans_done_)];
  }

  const Parts& parts_;
  const OpenSlice& slice_;
  const FieldPlace& field_;
  int64_t* num_spans_done_;
};

const FieldPlace& SliceTaskRunner::FieldOf(const SliceTask& task) const {
  const ReaderSpec& spec = *parts_.spec;
  const auto num_columns = static_cast<int64_t>(spec.columns.size());
  int64_t field = spec.row_valid_field;
  if (task.index < num_columns) {
    field = spec.columns[static_cast<size_t>(task.index)].field;
  } else if (task.index == num_columns && spec.row_id_field >= 0) {
    field = spec.row_id_field;
  }
  return parts_.layout->fields[static_cast<size_t>(field)];
}

std::vector<Segment> SliceTaskRunner::SegmentsOf(const SliceTask& task) const {
  const ReaderSpec& spec = *parts_.spec;
  const bool is_column = task.index < static_cast<int64_t>(spec.columns.size());
  const int64_t element =
      is_column ? spec.columns[static_cast<size_t>(task.index)].element : 0;
  const FieldPlace& place = FieldOf(task);
  std::vector<Segment> segments;
  segments.reserve(task.slice->spans.size());
  for (const OpenSlice::Span& span : task.slice->spans) {
    // The batches of spans that are done may have been taken, and be gone.
    if (std::ssize(segments) < task.num_spans_done) {
      segments.emplace_back();
      continue;
    }
    const int64_t item = span.first_row * place.width + element;
    uint8_t* slab = span.batch->memory.data;
    const int64_t cell_bytes = place.cell_items * place.item_bytes;
    Segment segment{.values = slab + place.values_offset + item * cell_bytes,
                    .num_rows = span.num_rows};
    if (place.valid_offset >= 0) {
      segment.valid = slab + place.valid_offset + item * place.valid_items;
    }
    segments.push_back(segment);
  }
  return segments;
}

void SliceTaskRunner::OpenReader(SliceTask* task) const {
  const ColumnSpec& column = parts_.spec->columns[static_cast<size_t>(task->index)];
  const Chunk& chunk = task->slice->slice.chunk;
  if (!column.file_bits.empty()) {
    task->reader =
        OpenConstant(column.source, column.file_bits[static_cast<size_t>(chunk.file)]);
    return;
  }
  std::shared_ptr<const ParquetFile> file;
  try {
    file = parts_.files->Open(chunk.file);
  } catch (...) {
    throw CurrentErrorAt({.path = parts_.files->path(chunk.file)});
  }
  task->reader = OpenColumn(file, column.source, chunk.rows.row_group, task->place,
                            std::move(task->buffers));
}

ColumnTarget SliceTaskRunner::TargetOf(const SliceTask& task) const {
  const ColumnSpec& column = parts_.spec->columns[static_cast<size_t>(task.index)];
  const FieldSpec& field = parts_.spec->fields[static_cast<size_t>(column.field)];
  return {.segments = {},
          .stride = field.width,
          .item_bytes = field.item_bytes,
          .cell_items = field.cell_items,
          .valid_items = field.valid_items,
          .has_item_valid = field.has_item_valid,
          .nulls = column.nulls,
          .fill_bits = column.fill_bits};
}

bool SliceTaskRunner::ReadColumn(SliceTask* task, std::span<const Segment> segments,
                                 DecodeScratch* scratch, Progress* progress) const {
  if (task->reader == nullptr) OpenReader(task);
  if (FieldOf(*task).num_offsets > 0) {
    return ReadJagged(task, segments, scratch, progress);
  }
  ColumnTarget target = TargetOf(*task);
  target.segments = segments;
  task->reader->Read(task->slice->slice.chunk.rows, target, scratch, progress);
  return true;
}

// Span after span, since how much memory one takes is known only behind it.
bool SliceTaskRunner::ReadJagged(SliceTask* task, std::span<const Segment> segments,
                                 DecodeScratch* scratch, Progress* progress) const {
  const std::vector<OpenSlice::Span>& spans = task->slice->spans;
  ColumnTarget target = TargetOf(*task);
  RowRange rows = task->slice->slice.chunk.rows;
  for (size_t i = 0; i < spans.size(); ++i) {
    rows.num_rows = spans[i].num_rows;
    const bool is_done = static_cast<int64_t>(i) < task->num_spans_done;
    if (!is_done) {
      target.segments = segments.subspan(i, 1);
      task->reader->Read(rows, target, scratch, progress);
      const bool is_last = i + 1 == spans.size();
      if (!is_last && parts_.jagged->is_full() &&
          spans[i + 1].batch != parts_.ring->front()) {
        return false;
      }
    }
    rows.begin = rows.end();
  }
  return true;
}

bool SliceTaskRunner::Run(SliceTask* task, DecodeScratch* scratch) const {
  const std::vector<Segment> segments = SegmentsOf(*task);
  const Chunk& chunk = task->slice->slice.chunk;
  const auto num_columns = static_cast<int64_t>(parts_.spec->columns.size());
  Progress progress(parts_, *task->slice, FieldOf(*task), &task->num_spans_done);
  if (task->index < num_columns) return ReadColumn(task, segments, scratch, &progress);
  if (task->index == num_columns && parts_.spec->row_id_field >= 0) {
    FillRowIds(chunk.first_row_id, segments);
  } else {
    for (const Segment& segment : segments) {
      std::memset(segment.values, chunk.valid, static_cast<size_t>(segment.num_rows));
    }
  }
  for (size_t i = 0; i < segments.size(); ++i) progress.SegmentDone();
  return true;
}

}  // namespace torchparquet
