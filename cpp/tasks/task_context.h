#pragma once

#include <atomic>
#include <cstdint>
#include <memory>

#include "batches/batch_ring.h"
#include "batches/jagged.h"
#include "batches/layout.h"
#include "columns/column_reader.h"
#include "files/parquet_file.h"
#include "tasks/reader_spec.h"
#include "tasks/share.h"

namespace torchparquet {

// What the tasks of a reader work with. It outlives them.
struct TaskContext {
  const ReaderSpec* spec;
  const BatchMap* batches;
  const BatchLayout* layout;
  ParquetFiles* files;
  JaggedMemory* jagged;
  BatchRing* ring;
  const std::atomic<bool>* stopping;  // true: tasks in work end early
};

// What tasks bring by their index: first each stored column, then row ids and validity.
enum class TaskKind { kColumn, kRowIds, kRowValid };
TaskKind KindOfTask(const ReaderSpec& spec, int64_t index);
// The place of the field that the task writes to.
const FieldPlace& FieldOfTask(const TaskContext& context, int64_t index);
// Which of its cells in each row.
int64_t ElementOfTask(const ReaderSpec& spec, int64_t index);

// Writes what a generated column has of the chunk's rows from `first_row` on.
void WriteGenerated(TaskKind kind, const Chunk& chunk, int64_t first_row,
                    const Segment& segment);

// A reader for a stored column of the chunk, from `place` on; `buffers` are taken where
// one is opened. Throws Error with path, row group and column.
std::unique_ptr<ColumnReader> OpenTaskReader(const TaskContext& context, int64_t index,
                                             const Chunk& chunk, const PagePlace& place,
                                             ColumnBuffers* buffers);

// Where a stored column goes to, but for the segments.
ColumnTarget TargetOfTask(const ReaderSpec& spec, int64_t index);

}  // namespace torchparquet
