#pragma once

#include <atomic>
#include <cstdint>
#include <span>
#include <vector>

#include "batch_ring.h"
#include "jagged.h"
#include "layout.h"
#include "parquet_file.h"
#include "reader_spec.h"
#include "scratch.h"
#include "slice_queue.h"

namespace torchparquet {

// Does what a task says: writes one column's rows of a slice to the slabs and counts
// them down, batch after batch. Immutable, so shared by all threads; what it is made of
// must outlive it.
class SliceTaskRunner {
 public:
  struct Parts {
    const ReaderSpec* spec;
    const BatchLayout* layout;
    ParquetFiles* files;
    JaggedMemory* jagged;
    BatchRing* ring;
    const std::atomic<bool>* stopping;  // true: tasks in work end early
  };
  explicit SliceTaskRunner(const Parts& parts) : parts_(parts) {}

  // Leaves the reader in the task, and counts the spans of the slice that are done there.
  // Returns false where it stopped before the last, because batches in flight hold as
  // much as they may. Throws Error with path, row group and column; Error(kStopped) when
  // told to end.
  bool Run(SliceTask* task, DecodeScratch* scratch) const;

 private:
  class Progress;

  const FieldPlace& FieldOf(const SliceTask& task) const;
  std::vector<Segment> SegmentsOf(const SliceTask& task) const;
  void OpenReader(SliceTask* task) const;
  ColumnTarget TargetOf(const SliceTask& task) const;
  bool ReadColumn(SliceTask* task, std::span<const Segment> segments,
                  DecodeScratch* scratch, Progress* progress) const;
  bool ReadJagged(SliceTask* task, std::span<const Segment> segments,
                  DecodeScratch* scratch, Progress* progress) const;

  const Parts parts_;
};

}  // namespace torchparquet
