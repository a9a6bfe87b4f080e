#include "reader/schedule/slice_stream.h"

#include <algorithm>
#include <utility>

#include "reader/schedule/lane_walks.h"

namespace torchparquet {

class SliceStream::Task : public DecodeTask {
 public:
  Task(SliceStream* stream, SliceTask task) : stream_(stream), task_(std::move(task)) {}

  bool Run(DecodeScratch* scratch) override {
    try {
      return stream_->runner_.Run(&task_, scratch);
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
  SliceStream* stream_;
  SliceTask task_;
};

SliceStream::SliceStream(const TaskContext& context, const Bounds& bounds,
                         KeptScratch kept)
    : context_(context),
      runner_(context),
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
