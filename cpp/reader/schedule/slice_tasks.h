#pragma once

#include <span>
#include <vector>

#include "pages/decode_scratch.h"
#include "reader/schedule/slice_queue.h"
#include "reader/schedule/task_context.h"

namespace torchparquet {

// Runs tasks: writes one column's rows of a slice to slabs and counts them down, batch
// after batch. Immutable, so shared by all threads.
class SliceTaskRunner {
 public:
  explicit SliceTaskRunner(const TaskContext& context) : context_(context) {}

  // Leaves the reader in the task and counts the spans that are done there. Returns false
  // if it stopped before the last span because batches in flight hold as much as they
  // may. Throws Error with path, row group and column, and Error(kStopped) when told to
  // end.
  bool Run(SliceTask* task, DecodeScratch* scratch) const;

 private:
  class Progress;

  std::vector<Segment> SegmentsOf(const SliceTask& task) const;
  bool ReadColumn(SliceTask* task, std::span<const Segment> segments,
                  DecodeScratch* scratch, Progress* progress) const;
  bool ReadJagged(SliceTask* task, std::span<const Segment> segments,
                  DecodeScratch* scratch, Progress* progress) const;

  const TaskContext context_;
};

}  // namespace torchparquet
