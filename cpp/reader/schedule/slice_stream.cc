#include "reader/schedule/slice_stream.h"

#include <algorithm>
#include <span>
#include <utility>

#include "base/errors.h"
#include "reader/schedule/lane_walks.h"

namespace torchparquet {

// Writes one column's rows of a slice to slabs and counts them down, batch after batch.
class SliceStream::Task : public DecodeTask, private DecodeProgress {
 public:
  Task(SliceStream* stream, SliceTask task)
      : stream_(stream),
        context_(stream->context_),
        field_(FieldOfTask(context_, task.index)),
        element_(ElementOfTask(*context_.spec, task.index)),
        task_(std::move(task)) {}

  // Leaves the reader in the task and counts the spans that are done there.
  bool Run(DecodeScratch* scratch) override {
    try {
      const TaskKind kind = KindOfTask(*context_.spec, task_.index);
      if (kind == TaskKind::kColumn) return ReadColumn(scratch);
      WriteRows(kind);
      return true;
    } catch (...) {
      task_.reader.reset();
      throw;
    }
  }
  int64_t index() const override { return task_.index; }
  const Chunk* chunk() const override { return &task_.slice->slice.chunk; }
  FailureKey failure_key() const override {
    return task_.slice->KeyOf(task_.num_spans_done, task_.index);
  }
  void Pause() override { task_ = stream_->slices_.Pause(std::move(task_)); }
  bool Finish() override {
    task_ = stream_->slices_.Finish(std::move(task_));
    return stream_->slices_.has_long_pages(task_.index);
  }

 private:
  JaggedItems BeginItems() override {
    return context_.jagged->Begin(field_.first_jagged + element_, span().num_rows,
                                  field_.num_offsets, field_.has_item_valid);
  }
  void EndItems(JaggedItems items) override {
    JaggedPart part{.first_row = span().first_row,
                    .num_rows = span().num_rows,
                    .items = std::move(items)};
    context_.jagged->Learn(field_.first_jagged + element_, part.num_rows, part.items);
    const ColumnSpec& column = context_.spec->columns[static_cast<size_t>(task_.index)];
    span().batch->AddPart(field_.jagged_index, element_, std::move(part),
                          column.request.path);
  }
  void SegmentDone() override {
    const OpenSlice::Span& done = span();
    ++task_.num_spans_done;
    context_.ring->CountDown(*done.batch, done.num_rows);
    if (*context_.stopping) throw ReaderClosed();
  }

  const OpenSlice::Span& span() const {
    return task_.slice->spans[static_cast<size_t>(task_.num_spans_done)];
  }
  std::vector<Segment> Segments() const;
  void WriteRows(TaskKind kind);
  bool ReadColumn(DecodeScratch* scratch);
  bool ReadJagged(std::span<const Segment> segments, DecodeScratch* scratch);

  SliceStream* stream_;
  const TaskContext& context_;
  const FieldPlace& field_;
  const int64_t element_;
  SliceTask task_;
};

std::vector<Segment> SliceStream::Task::Segments() const {
  std::vector<Segment> segments;
  segments.reserve(task_.slice->spans.size());
  for (const OpenSlice::Span& span : task_.slice->spans) {
    // Batches of spans that are done may have been taken and destroyed.
    if (std::ssize(segments) < task_.num_spans_done) {
      segments.emplace_back();
      continue;
    }
    uint8_t* slab = span.batch->memory.data;
    Segment segment{.values = slab + field_.OffsetOf(span.first_row, element_),
                    .num_rows = span.num_rows};
    if (field_.valid_offset >= 0) {
      const int64_t item = span.first_row * field_.width + element_;
      segment.valid = slab + field_.valid_offset + item * field_.valid_items;
    }
    segments.push_back(segment);
  }
  return segments;
}

// Of a generated column.
void SliceStream::Task::WriteRows(TaskKind kind) {
  const auto selection = IdSelectionOf(context_, *chunk());
  int64_t first_row = 0;
  for (const Segment& segment : Segments()) {
    WriteGenerated(kind, *chunk(), selection.get(), first_row, segment);
    first_row += segment.num_rows;
    SegmentDone();
  }
}

bool SliceStream::Task::ReadColumn(DecodeScratch* scratch) {
  const std::vector<Segment> segments = Segments();
  if (task_.reader == nullptr) {
    const CostTimer timer(&scratch->costs.open_time);
    task_.reader =
        OpenTaskReader(context_, task_.index, *chunk(), task_.place, &task_.buffers);
  }
  if (field_.num_offsets > 0) return ReadJagged(segments, scratch);
  ColumnTarget target = TargetOfTask(*context_.spec, task_.index);
  target.segments = segments;
  target.streaming = true;
  task_.reader->Read(chunk()->rows, target, scratch, this);
  return true;
}

// Span after span, since the memory that a span takes is known only after it.
bool SliceStream::Task::ReadJagged(std::span<const Segment> segments,
                                   DecodeScratch* scratch) {
  const std::vector<OpenSlice::Span>& spans = task_.slice->spans;
  ColumnTarget target = TargetOfTask(*context_.spec, task_.index);
  RowRange rows = chunk()->rows;
  for (size_t i = 0; i < spans.size(); ++i) {
    rows.num_rows = spans[i].num_rows;
    const bool is_done = static_cast<int64_t>(i) < task_.num_spans_done;
    if (!is_done) {
      target.segments = segments.subspan(i, 1);
      task_.reader->Read(rows, target, scratch, this);
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

SliceStream::SliceStream(const TaskContext& context, const Bounds& bounds,
                         KeptScratch kept)
    : context_(context),
      is_jagged_(AreJagged(*context.spec)),
      slices_(context.spec->num_tasks(), bounds.max_held_bytes, std::move(kept.columns)) {
  const ReaderSpec& spec = *context.spec;
  for (int64_t lane = 0; lane < spec.num_lanes(); ++lane) {
    walks_.emplace_back(&spec.lane(lane), bounds.cut, lane);
  }
}

std::optional<BatchRange> SliceStream::next() const {
  const SliceWalk* walk = FirstWalk(*context_.batches, walks_);
  if (walk == nullptr) return std::nullopt;
  return BatchesOf(*context_.batches, *walk->next());
}

void SliceStream::Refresh() {
  for (SliceWalk& walk : walks_) {
    if (!walk.next()) walk.Advance();
  }
}

bool SliceStream::may_grow() const {
  return std::ranges::any_of(walks_, [](const auto& walk) { return !walk.has_ended(); });
}

void SliceStream::OpenNext() {
  SliceWalk* walk = FirstWalk(*context_.batches, walks_);
  const Slice& slice = *walk->next();
  OpenSlice open{.slice = slice,
                 .number = num_slices_,
                 .first_batch = BatchesOf(*context_.batches, slice).begin,
                 .handles = OpenHandles(context_, slice.chunk)};
  for (const BatchRun& run :
       context_.batches->Cut(slice.share_row, slice.chunk.rows.num_rows, slice.lane)) {
    open.spans.push_back({&context_.ring->At(run.batch), run.first_row, run.num_rows});
  }
  slices_.Push(std::move(open));
  ++num_slices_;
  walk->Advance();
}

std::unique_ptr<DecodeTask> SliceStream::Take(Choice choice) {
  std::optional<SliceQueue::Pressure> pressure;
  if (context_.jagged->is_full()) {
    pressure = SliceQueue::Pressure{&is_jagged_, context_.ring->front()};
  }
  auto task = slices_.Take(choice, pressure, MayAwaitBytes(context_, num_running()));
  return task ? std::make_unique<Task>(this, std::move(*task)) : nullptr;
}

}  // namespace torchparquet
