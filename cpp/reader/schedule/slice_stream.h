#pragma once

#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <vector>

#include "reader/plan/share.h"
#include "reader/schedule/slice_queue.h"
#include "reader/schedule/task_context.h"
#include "reader/schedule/task_stream.h"

namespace torchparquet {

// The tasks of a share whose rows are delivered in file order: the columns of one slice
// after another.
class SliceStream : public TaskStream {
 public:
  struct Bounds {
    SliceCut cut;  // of chunks
    int64_t max_held_bytes;
  };
  // `kept` comes from an earlier reader.
  SliceStream(const TaskContext& context, const Bounds& bounds, KeptScratch kept);

  std::optional<BatchRange> next() const override;
  void OpenNext() override;
  void Refresh() override;
  bool may_grow() const override;
  int64_t num_opened() const override { return num_slices_; }
  std::unique_ptr<DecodeTask> Take(Choice choice) override;
  bool has_untaken() const override { return slices_.has_untaken(); }
  bool HasUntakenBefore(const FailureKey& key) const override {
    return slices_.HasUntakenBefore(key);
  }
  int64_t num_running() const override { return slices_.num_running(); }
  int64_t held_bytes() const override { return slices_.held_bytes(); }
  KeptScratch Clear() override { return {.columns = slices_.Clear(), .places = {}}; }

 private:
  class Task;

  const TaskContext context_;
  const std::vector<bool> is_jagged_;  // by task
  // By lane. References stay valid.
  std::deque<SliceWalk> walks_;
  SliceQueue slices_;
  int64_t num_slices_ = 0;
};

}  // namespace torchparquet
