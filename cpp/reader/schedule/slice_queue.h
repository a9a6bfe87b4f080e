#pragma once

#include <cstdint>
#include <functional>
#include <list>
#include <map>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "batches/batch_ring.h"
#include "columns/column_reader.h"
#include "reader/plan/share.h"
#include "reader/schedule/index_set.h"
#include "reader/schedule/task_stream.h"

namespace torchparquet {

// A slice whose columns are being decoded.
struct OpenSlice {
  struct Span {  // rows of the slice within one batch
    InFlightBatch* batch;
    int64_t first_row;  // within the batch
    int64_t num_rows;
  };
  Slice slice;
  int64_t number = 0;
  int64_t first_batch = 0;
  std::vector<Span> spans = {};

  // The place in the order of a task that fails after so many spans.
  FailureKey KeyOf(int64_t num_spans_done, int64_t index) const {
    return {first_batch + num_spans_done, number, index};
  }
};

// One column of one slice, or one of its generated columns, which come after the stored
// ones.
struct SliceTask {
  const OpenSlice* slice = nullptr;
  int64_t index = 0;
  int64_t num_spans_done = 0;  // before the task was paused
  // A reader at the slice's first row or before it. Null if none is idle; then a new one
  // is opened at `place`, with `buffers`.
  std::unique_ptr<ColumnReader> reader = {};
  PagePlace place = {};
  ColumnBuffers buffers = {};
};

// The open slices, in plan order, and the column readers that go from slice to slice of a
// chunk. Used under one lock.
//
// A task:                untaken --Take--> runs --Finish--> done
//                           ^               |
//                           +-----Pause-----+  keeps its own reader if there is room
//
// Its reader at Finish:  idle, until the column's next slice takes it
//                        given up, if there is no room: that slice begins anew in the
//                          page whose place is kept
//                        buffers alone, after the chunk's last slice: for any column
class SliceQueue {
 public:
  // Idle readers and spare buffers hold at most `max_held_bytes`. Anything beyond is
  // given up, and costs reading a page and a dictionary again. One reader of a long
  // page may hold more by itself: the page was in memory as a whole anyway, and would be
  // read again in each slice. `spare` are buffers of an earlier queue.
  SliceQueue(int64_t num_tasks, int64_t max_held_bytes,
             std::vector<ColumnBuffers> spare = {});

  void Push(OpenSlice slice);

  // Another thread may be reading the column in an earlier slice of the chunk. A second
  // reader can then read it too, at the price of decoding a page twice. Columns of long
  // pages wait.
  using Choice = TaskStream::Choice;
  // Says which tasks have to wait for memory: those with an index in `waits`, except for
  // what the batch at the front still needs.
  struct Pressure {
    const std::vector<bool>* waits;
    const InFlightBatch* front;
  };
  // Says if the bytes of a chunk's column are there.
  using IsReady = std::function<bool(const Chunk&, int64_t index)>;
  // Takes the first such task of the earliest slice, of those that are ready where that
  // is asked. Returns nothing if there is none.
  std::optional<SliceTask> Take(Choice choice,
                                const std::optional<Pressure>& pressure = std::nullopt,
                                const IsReady& is_ready = nullptr);
  // Takes back a task that is not done, to be taken again. Returns as Finish does.
  SliceTask Pause(SliceTask task);
  // Takes back a task with its reader, which is null after a failure. Returns the memory
  // that is given up, to be destroyed without the lock.
  SliceTask Finish(SliceTask task);
  // True if other tasks of the column wait while one runs.
  bool has_long_pages(int64_t index) const {
    return has_long_pages_[static_cast<size_t>(index)];
  }
  // Gives up all readers. Returns the spare buffers.
  std::vector<ColumnBuffers> Clear();

  bool empty() const { return entries_.empty(); }
  bool has_untaken() const { return first_open_ != entries_.end(); }
  // True if a task that nobody has taken could fail before `key`.
  bool HasUntakenBefore(const FailureKey& key) const;
  int64_t num_running() const { return num_running_; }
  int64_t held_bytes() const { return held_bytes_ + large_bytes_; }

 private:
  struct Column {  // of an open chunk
    bool is_unshared() const { return num_untaken > 0 && num_running == 0; }

    std::unique_ptr<ColumnReader> idle;
    PagePlace place;          // the furthest known
    int64_t num_untaken = 0;  // of its tasks in open slices
    int64_t num_running = 0;
    bool last_taken = false;  // the task of the chunk's last slice
    int64_t ended_in = -1;    // the place of the page in which a task ended last
    int64_t unready_at = -1;  // the number of the last Take that found it not ready
  };
  struct OpenChunk {
    int64_t number;
    std::vector<Column> columns;
  };
  // The progress of a paused task.
  struct Paused {
    int64_t num_spans_done = 0;
    std::unique_ptr<ColumnReader> reader;
    PagePlace place;  // where another reader can continue
  };
  struct Entry;
  using Entries = std::list<Entry>;
  // A task leads to its entry by its slice.
  struct Entry : OpenSlice {
    Entry(OpenSlice opened, int64_t num_tasks)
        : OpenSlice(std::move(opened)), untaken(num_tasks), num_unfinished(num_tasks) {}

    Entries::iterator place = {};
    std::shared_ptr<OpenChunk> chunk = {};
    IndexSet untaken;                       // tasks by index
    std::map<int64_t, Paused> paused = {};  // by index; not taken
    int64_t num_unfinished;
  };

  bool MustAwaitBytes(Entry* entry, int64_t index, const IsReady& is_ready) const;
  static bool MustWait(const Entry& entry, int64_t index, const Pressure& pressure);
  static int64_t NumSpansDone(const Entry& entry, int64_t index);
  SliceTask TakeFrom(Entry* entry, int64_t index);
  void Count(Column* column, int64_t untaken, int64_t running);
  static Entry& EntryOf(const SliceTask& task);
  ColumnBuffers TakeSpare();
  std::unique_ptr<ColumnReader> TakeIdle(Column* column);
  void Keep(SliceTask* task, Column* column);
  void KeepSpare(ColumnBuffers* buffers);
  bool MayHold(int64_t num_bytes) const;
  bool Hold(const ColumnReader& reader);
  bool HasLongPage(const ColumnReader& reader) const;
  bool IsLarge(const ColumnReader& reader) const;
  void Release(const ColumnReader& reader);
  void Learn(const SliceTask& task, Column* column);

  const int64_t num_tasks_;
  const int64_t max_held_bytes_;
  Entries entries_;
  // The first one with a task that nobody has taken. With many threads, most are taken
  // whole, and each look at one brings memory from another core.
  Entries::iterator first_open_ = entries_.end();
  // By lane. More slices of these may come.
  std::map<int64_t, std::shared_ptr<OpenChunk>> last_chunks_;
  // Last in, first out: the memory that a thread has just used is in its cache.
  std::vector<ColumnBuffers> spare_;
  int64_t held_bytes_ = 0;
  int64_t large_bytes_ = 0;           // of a reader that holds more than max_held_bytes_
  std::vector<bool> has_long_pages_;  // by task, as far as readers have met them
  int64_t num_running_ = 0;
  // Columns of chunks with a task for Choice::kUnshared. While there is none, as when
  // many threads share few columns, no slice is looked at.
  int64_t num_unshared_ = 0;
  int64_t num_takes_ = 0;
};

}  // namespace torchparquet
