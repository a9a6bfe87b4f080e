#pragma once

#include <cstdint>
#include <list>
#include <map>
#include <memory>
#include <optional>
#include <vector>

#include "batches/batch_ring.h"
#include "columns/column_reader.h"
#include "tasks/share.h"
#include "tasks/task_stream.h"

namespace torchparquet {

// A slice whose columns are being decoded.
struct OpenSlice {
  struct Span {  // the slice's rows within one batch
    InFlightBatch* batch;
    int64_t first_row;  // within the batch
    int64_t num_rows;
  };
  Slice slice;
  int64_t number = 0;
  int64_t first_batch = 0;
  std::vector<Span> spans = {};
};

// One column of one slice, or one of the generated columns behind them.
struct SliceTask {
  const OpenSlice* slice = nullptr;
  int64_t index = 0;
  int64_t num_spans_done = 0;  // of the slice's, before the task was paused
  // One that stands at the slice's first row or before it; null when none is idle.
  // Then one is to be opened at `place`, with `buffers`.
  std::unique_ptr<ColumnReader> reader = {};
  PagePlace place = {};
  ColumnBuffers buffers = {};
};

// The slices in work, in plan order, and the column readers that go from slice to slice
// of a chunk. To be used under one lock.
class SliceQueue {
 public:
  // Idle readers and spare buffers hold at most `max_held_bytes`; what is beyond is
  // given up, and costs a page and a dictionary read anew.
  // `spare` are buffers of an earlier queue.
  SliceQueue(int64_t num_tasks, int64_t max_held_bytes,
             std::vector<ColumnBuffers> spare = {});

  void Push(OpenSlice slice);

  // A column that another thread is reading in an earlier slice of the chunk can be read
  // beside it by a reader of its own, at the price of decoding a page twice.
  using Choice = TaskStream::Choice;
  // Which tasks have to wait because what they decode takes memory that there is not:
  // those that `waits` says by index, but for what the batch at the front still needs.
  struct Pressure {
    const std::vector<bool>* waits;
    const InFlightBatch* front;
  };
  // The first such task of the earliest slice; nothing when there is none.
  std::optional<SliceTask> Take(Choice choice,
                                const std::optional<Pressure>& pressure = std::nullopt);
  // Takes back a task that is not done, to be taken again. Returns as Finish does.
  SliceTask Pause(SliceTask task);
  // Takes back a task with its reader, which is null after a failure. Returns what is
  // given up, to be destroyed without the lock.
  SliceTask Finish(SliceTask task);
  // Gives up all readers. Returns the spare buffers.
  std::vector<ColumnBuffers> Clear();

  bool empty() const { return entries_.empty(); }
  bool has_untaken() const;
  int64_t num_running() const { return num_running_; }
  int64_t held_bytes() const { return held_bytes_; }

 private:
  struct Column {  // of an open chunk
    std::unique_ptr<ColumnReader> idle;
    PagePlace place;  // the furthest known
    int64_t num_running = 0;
    bool last_taken = false;  // the task of the chunk's last slice
  };
  struct OpenChunk {
    int64_t number;
    std::vector<Column> columns;
  };
  // How far a task has come that waits to be taken again.
  struct Paused {
    int64_t num_spans_done = 0;
    std::unique_ptr<ColumnReader> reader;
    PagePlace place;  // where another reader can go on
  };
  struct Entry {
    OpenSlice slice;
    std::shared_ptr<OpenChunk> chunk;
    std::vector<bool> taken;
    std::map<int64_t, Paused> paused;  // by index, which is not taken
    int64_t first_untaken = 0;
    int64_t num_unfinished = 0;
  };

  static bool MustWait(const Entry& entry, int64_t index, const Pressure& pressure);
  SliceTask TakeFrom(Entry* entry, int64_t index);
  Entry& EntryOf(const SliceTask& task);
  ColumnBuffers TakeSpare();
  std::unique_ptr<ColumnReader> TakeIdle(Column* column);
  void Keep(SliceTask* task, Column* column);
  void KeepSpare(ColumnBuffers* buffers);
  bool MayHold(int64_t num_bytes) const;

  const int64_t num_tasks_;
  const int64_t max_held_bytes_;
  std::list<Entry> entries_;
  // By lane; more slices of it may come.
  std::map<int64_t, std::shared_ptr<OpenChunk>> last_chunks_;
  // Last in, first out: what a thread has just used is in its cache.
  std::vector<ColumnBuffers> spare_;
  int64_t held_bytes_ = 0;
  int64_t num_running_ = 0;
};

}  // namespace torchparquet
