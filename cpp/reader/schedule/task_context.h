#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <vector>

#include "batches/batch_ring.h"
#include "batches/jagged.h"
#include "batches/layout.h"
#include "columns/column_reader.h"
#include "files/parquet_files.h"
#include "reader/plan/reader_spec.h"
#include "reader/plan/share.h"
#include "reader/prefetch/prefetcher.h"

namespace torchparquet {

// The objects that the tasks of a reader work with. They outlive the tasks.
struct TaskContext {
  const ReaderSpec* spec;
  const BatchMap* batches;
  const BatchLayout* layout;
  ReaderFiles* files;
  JaggedMemory* jagged;
  BatchRing* ring;
  const std::atomic<bool>* stopping;  // true: running tasks end early
  Prefetcher* prefetcher = nullptr;   // null if no file is in a store
};

// Tasks by index: first the stored columns, then row ids and validity.
enum class TaskKind { kColumn, kRowIds, kRowValid };
TaskKind KindOfTask(const ReaderSpec& spec, int64_t index);
// The place of the field that the task writes to.
const FieldPlace& FieldOfTask(const TaskContext& context, int64_t index);
// The number of the cell, in each row of that field, that the task writes.
int64_t ElementOfTask(const ReaderSpec& spec, int64_t index);

// The selected rows of the chunk's row group; null for all.
std::shared_ptr<const RowSelection> SelectionOf(const TaskContext& context,
                                                const Chunk& chunk);

// The selection whose rows have row ids: null too where rows are packed sequences.
std::shared_ptr<const RowSelection> IdSelectionOf(const TaskContext& context,
                                                  const Chunk& chunk);

// Writes the rows of a generated column from the chunk's row `first_row` on. `selection`
// is that of IdSelectionOf.
void WriteGenerated(TaskKind kind, const Chunk& chunk, const RowSelection* selection,
                    int64_t first_row, const Segment& segment);

// True if a task may wait for bytes by itself, as nothing else would bring them, or none
// of a store are read. `num_running` are other tasks of the reader.
bool MayAwaitBytes(const TaskContext& context, int64_t num_running);
// Handles for the bytes of a chunk by stored column; empty for a file in no store.
std::vector<RemoteBlocks::Handle> OpenHandles(const TaskContext& context,
                                              const Chunk& chunk);
// The step of a chunk, with the rows that are read.
ReadStep StepWithRows(const ReaderSpec& spec, const Chunk& chunk);

// Opens a reader for a stored column of the chunk at `place`. Takes `buffers` if it opens
// one. Throws Error with path, row group and column.
std::unique_ptr<ColumnReader> OpenTaskReader(const TaskContext& context, int64_t index,
                                             const Chunk& chunk, const PagePlace& place,
                                             ColumnBuffers* buffers);

// The target of a stored column, without segments.
ColumnTarget TargetOfTask(const ReaderSpec& spec, int64_t index);

}  // namespace torchparquet
