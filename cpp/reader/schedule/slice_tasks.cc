#include "reader/schedule/slice_tasks.h"

#include <utility>

#include "base/errors.h"

namespace torchparquet {

// Counts a task's cells down, batch after batch.
class SliceTaskRunner::Progress : public DecodeProgress {
 public:
  Progress(const TaskContext& context, SliceTask* task)
      : context_(context),
        slice_(*task->slice),
        field_(FieldOfTask(context, task->index)),
        index_(task->index),
        element_(ElementOfTask(*context.spec, task->index)),
        num_spans_done_(&task->num_spans_done) {}

  JaggedItems BeginItems() override {
    return context_.jagged->Begin(field_.first_jagged + element_, span().num_rows,
                                  field_.num_offsets, field_.has_item_valid);
  }
  void EndItems(JaggedItems items) override {
    JaggedPart part{.first_row = span().first_row,
                    .num_rows = span().num_rows,
                    .items = std::move(items)};
    context_.jagged->Learn(field_.first_jagged + element_, part.num_rows, part.items);
    const ColumnSpec& column = context_.spec->columns[static_cast<size_t>(index_)];
    span().batch->AddPart(field_.jagged_index, element_, std::move(part),
                          column.request.path);
  }

  void SegmentDone() override {
    const OpenSlice::Span& done = span();
    ++*num_spans_done_;
    context_.ring->CountDown(*done.batch, done.num_rows);
    if (*context_.stopping) throw Error(ErrorKind::kStopped, "the reader was closed");
  }

 private:
  const OpenSlice::Span& span() const {
    return slice_.spans[static_cast<size_t>(*num_spans_done_)];
  }

  const TaskContext& context_;
  const OpenSlice& slice_;
  const FieldPlace& field_;
  const int64_t index_;
  const int64_t element_;
  int64_t* num_spans_done_;
};

std::vector<Segment> SliceTaskRunner::SegmentsOf(const SliceTask& task) const {
  const int64_t element = ElementOfTask(*context_.spec, task.index);
  const FieldPlace& place = FieldOfTask(context_, task.index);
  std::vector<Segment> segments;
  segments.reserve(task.slice->spans.size());
  for (const OpenSlice::Span& span : task.slice->spans) {
    // Batches of spans that are done may have been taken and destroyed.
    if (std::ssize(segments) < task.num_spans_done) {
      segments.emplace_back();
      continue;
    }
    uint8_t* slab = span.batch->memory.data;
    Segment segment{.values = slab + place.OffsetOf(span.first_row, element),
                    .num_rows = span.num_rows};
    if (place.valid_offset >= 0) {
      const int64_t item = span.first_row * place.width + element;
      segment.valid = slab + place.valid_offset + item * place.valid_items;
    }
    segments.push_back(segment);
  }
  return segments;
}

bool SliceTaskRunner::ReadColumn(SliceTask* task, std::span<const Segment> segments,
                                 DecodeScratch* scratch, Progress* progress) const {
  if (task->reader == nullptr) {
    const CostTimer timer(&scratch->costs.open_time);
    task->reader = OpenTaskReader(context_, task->index, task->slice->slice.chunk,
                                  task->place, &task->buffers);
  }
  if (FieldOfTask(context_, task->index).num_offsets > 0) {
    return ReadJagged(task, segments, scratch, progress);
  }
  ColumnTarget target = TargetOfTask(*context_.spec, task->index);
  target.segments = segments;
  target.streaming = true;
  task->reader->Read(task->slice->slice.chunk.rows, target, scratch, progress);
  return true;
}

// Span after span, since the memory that a span takes is known only after it.
bool SliceTaskRunner::ReadJagged(SliceTask* task, std::span<const Segment> segments,
                                 DecodeScratch* scratch, Progress* progress) const {
  const std::vector<OpenSlice::Span>& spans = task->slice->spans;
  ColumnTarget target = TargetOfTask(*context_.spec, task->index);
  RowRange rows = task->slice->slice.chunk.rows;
  for (size_t i = 0; i < spans.size(); ++i) {
    rows.num_rows = spans[i].num_rows;
    const bool is_done = static_cast<int64_t>(i) < task->num_spans_done;
    if (!is_done) {
      target.segments = segments.subspan(i, 1);
      task->reader->Read(rows, target, scratch, progress);
      const bool is_last = i + 1 == spans.size();
      if (!is_last && context_.jagged->is_full() &&
          spans[i + 1].batch != context_.ring->front()) {
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
  Progress progress(context_, task);
  const TaskKind kind = KindOfTask(*context_.spec, task->index);
  if (kind == TaskKind::kColumn) return ReadColumn(task, segments, scratch, &progress);
  const auto selection = IdSelectionOf(context_, chunk);
  int64_t first_row = 0;
  for (const Segment& segment : segments) {
    WriteGenerated(kind, chunk, selection.get(), first_row, segment);
    first_row += segment.num_rows;
    progress.SegmentDone();
  }
  return true;
}

}  // namespace torchparquet
