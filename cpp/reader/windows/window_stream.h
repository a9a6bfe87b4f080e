#pragma once

#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <vector>

#include "base/scratch_buffer.h"
#include "reader/plan/share.h"
#include "reader/schedule/task_context.h"
#include "reader/schedule/task_stream.h"
#include "reader/windows/window_queue.h"
#include "reader/windows/window_tasks.h"

namespace torchparquet {

// The tasks of a share whose rows are permuted within windows. A window is opened with
// all of its batches, as its rows may land in any of them.
class WindowStream : public TaskStream {
 public:
  // At most `max_columns` columns are in work at once. `kept` comes from an earlier
  // reader.
  WindowStream(const TaskContext& context, const WorkSplit& split, int64_t max_columns,
               KeptScratch kept);

  std::optional<BatchRange> next() const override;
  void OpenNext() override;
  int64_t num_opened() const override { return num_windows_; }
  std::unique_ptr<DecodeTask> Take(Choice choice) override;
  bool has_untaken() const override { return windows_.has_untaken(); }
  bool HasUntakenBefore(const FailureKey& key) const override {
    return windows_.HasUntakenBefore(key);
  }
  int64_t num_running() const override { return windows_.num_running(); }
  int64_t held_bytes() const override;
  KeptScratch Clear() override { return {.columns = {}, .places = std::move(spare_)}; }

 private:
  class Task;

  ScratchBuffer TakeSpare();

  const TaskContext context_;
  const WindowTaskRunner runner_;
  // By lane. References stay valid.
  std::deque<WindowWalk> walks_;
  WindowQueue windows_;
  const std::vector<int64_t> num_gathers_;  // by task
  // By task: columns with later items too far from their first ones.
  std::vector<bool> lie_far_;
  std::vector<ScratchBuffer> spare_;  // for the places of windows
  int64_t num_windows_ = 0;
};

}  // namespace torchparquet
