#include "slice_stream.h"

#include <algorithm>
#include <utility>

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
  FailureKey failure_key() const override {
    return {task_.slice->first_batch + task_.num_spans_done, task_.slice->number,
            task_.index};
  }
  void Pause() override { task_ = stream_->slices_.Pause(std::move(task_)); }
  void Finish() override { task_ = stream_->slices_.Finish(std::move(task_)); }

 private:
  SliceStream* stream_;
  SliceTask task_;
};

SliceStream::SliceStream(const TaskParts& parts, const Bounds& bounds)
    : parts_(parts),
      runner_(parts),
      is_jagged_(AreJagged(*parts.spec)),
      walk_(&parts.spec->share,
            {.max_rows = bounds.max_slice_rows, .batch_rows = parts.spec->batch_rows}),
      slices_(parts.spec->num_tasks(), bounds.max_held_bytes) {}

std::optional<BatchRange> SliceStream::next() const {
  const std::optional<Slice>& slice = walk_.next();
  if (!slice) return std::nullopt;
  const int64_t last_row = slice->share_row + slice->chunk.rows.num_rows - 1;
  return BatchRange{parts_.batches->Locate(slice->share_row).batch,
                    parts_.batches->Locate(last_row).batch + 1};
}

void SliceStream::OpenNext() {
  OpenSlice open{.slice = *walk_.next(), .number = num_slices_};
  for (const BatchRun& run :
       parts_.batches->Cut(open.slice.share_row, open.slice.chunk.rows.num_rows)) {
    open.spans.push_back({&parts_.ring->At(run.batch), run.first_row, run.num_rows});
  }
  open.first_batch = parts_.batches->Locate(open.slice.share_row).batch;
  slices_.Push(std::move(open));
  ++num_slices_;
  walk_.Advance();
}

std::unique_ptr<DecodeTask> SliceStream::Take(Choice choice) {
  std::optional<SliceQueue::Pressure> pressure;
  if (parts_.jagged->is_full()) {
    pressure = SliceQueue::Pressure{&is_jagged_, parts_.ring->front()};
  }
  const auto queue_choice =
      choice == Choice::kAny ? SliceQueue::Choice::kAny : SliceQueue::Choice::kUnshared;
  auto task = slices_.Take(queue_choice, pressure);
  return task ? std::make_unique<Task>(this, std::move(*task)) : nullptr;
}

}  // namespace torchparquet
