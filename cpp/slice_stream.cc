#include "slice_stream.h"

#include <utility>

#include "reader_plan.h"

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
  FailureKey failure_key() const override {
    return {task_.slice->first_batch + task_.num_spans_done, task_.slice->number,
            task_.index};
  }
  void Pause() override { task_ = stream_->slices_.Pause(std::move(task_)); }
  bool Finish() override {
    task_ = stream_->slices_.Finish(std::move(task_));
    return false;
  }

 private:
  SliceStream* stream_;
  SliceTask task_;
};

SliceStream::SliceStream(const TaskParts& parts, const Bounds& bounds, KeptScratch kept)
    : parts_(parts),
      runner_(parts),
      is_jagged_(AreJagged(*parts.spec)),
      slices_(parts.spec->num_tasks(), bounds.max_held_bytes, std::move(kept.columns)) {
  const ReaderSpec& spec = *parts.spec;
  for (int64_t lane = 0; lane < spec.num_lanes(); ++lane) {
    walks_.emplace_back(&spec.lane(lane),
                        SliceCut{.max_rows = bounds.max_slice_rows,
                                 .batch_rows = spec.batch_rows / spec.num_lanes()},
                        lane);
  }
}

std::optional<BatchRange> SliceStream::next() const {
  const SliceWalk* walk = FirstWalk(*parts_.batches, walks_);
  if (walk == nullptr) return std::nullopt;
  return BatchesOf(*parts_.batches, *walk->next());
}

void SliceStream::OpenNext() {
  SliceWalk* walk = FirstWalk(*parts_.batches, walks_);
  const Slice& slice = *walk->next();
  OpenSlice open{.slice = slice,
                 .number = num_slices_,
                 .first_batch = BatchesOf(*parts_.batches, slice).begin};
  for (const BatchRun& run :
       parts_.batches->Cut(slice.share_row, slice.chunk.rows.num_rows, slice.lane)) {
    open.spans.push_back({&parts_.ring->At(run.batch), run.first_row, run.num_rows});
  }
  slices_.Push(std::move(open));
  ++num_slices_;
  walk->Advance();
}

std::unique_ptr<DecodeTask> SliceStream::Take(Choice choice) {
  std::optional<SliceQueue::Pressure> pressure;
  if (parts_.jagged->is_full()) {
    pressure = SliceQueue::Pressure{&is_jagged_, parts_.ring->front()};
  }
  auto task = slices_.Take(choice, pressure);
  return task ? std::make_unique<Task>(this, std::move(*task)) : nullptr;
}

}  // namespace torchparquet
