#pragma once

#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <vector>

#include "scratch.h"
#include "share.h"
#include "task_parts.h"
#include "task_source.h"
#include "window_queue.h"
#include "window_tasks.h"

namespace torchparquet {

// The tasks of a share whose rows are permuted within windows. A window is opened with
// all of its batches, as its rows may land in any of them.
class WindowStream : public TaskSource {
 public:
  // At most `max_columns` are in work at once. `kept` is of an earlier reader.
  WindowStream(const TaskParts& parts, int64_t max_columns, KeptScratch kept);

  std::optional<BatchRange> next() const override;
  void OpenNext() override;
  int64_t num_opened() const override { return num_windows_; }
  std::unique_ptr<DecodeTask> Take(Choice choice) override;
  bool empty() const override { return windows_.empty(); }
  bool has_untaken() const override { return windows_.has_untaken(); }
  int64_t num_running() const override { return windows_.num_running(); }
  int64_t held_bytes() const override;
  KeptScratch Clear() override { return {.columns = {}, .places = std::move(spare_)}; }

 private:
  class Task;

  ScratchBuffer TakeSpare();

  const TaskParts parts_;
  const WindowTaskRunner runner_;
  // By lane. References stay valid.
  std::deque<WindowWalk> walks_;
  WindowQueue windows_;
  // By task: columns whose items did not lie as close together as they began.
  std::vector<bool> lie_far_;
  std::vector<ScratchBuffer> spare_;  // for the places of windows
  int64_t num_windows_ = 0;
};

}  // namespace torchparquet
