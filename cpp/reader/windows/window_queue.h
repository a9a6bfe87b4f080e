#pragma once

#include <cstdint>
#include <list>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "reader/schedule/index_set.h"
#include "reader/windows/open_window.h"

namespace torchparquet {

// The open windows, in plan order. Tasks of a window are taken column by column, so that
// few columns have staging memory at once. Used under one lock.
//
// A column of a window:
//
//   not begun --Take--> decoding --Finish of its last chunk--> gathering --> finished
//             (room)    a task for each chunk                  tasks for parts of its
//             rows
//
// A column has room if fewer than `max_columns` are between its begin and its end: those
// hold staging memory. Gathering starts only when all chunks are decoded, since a batch
// has rows of any chunk. A window leaves the queue with its last task.
class WindowQueue {
 public:
  // `is_jagged` says, by task of a chunk, if it decodes items of different lengths. At
  // most `max_columns` columns are in work at once.
  WindowQueue(int64_t num_tasks, std::vector<bool> is_jagged, int64_t max_columns)
      : num_tasks_(num_tasks),
        is_jagged_(std::move(is_jagged)),
        max_columns_(max_columns) {}

  void Push(std::unique_ptr<OpenWindow> window);

  // Takes the next task of the first window that has one. Each thread has a column of its
  // own while there are enough: memory that another core has touched costs more to write
  // to. With `front`, the number of a batch, tasks that decode items of different lengths
  // must belong to a window with that batch, and one of its columns begins where others
  // have all the room. Their bytes must be there, unless they `may_await` them.
  std::optional<WindowTask> Take(std::optional<int64_t> front = std::nullopt,
                                 bool may_await = true);
  struct Finished {
    std::unique_ptr<OpenWindow> window;  // after its last task
    bool frees_others = false;           // tasks that waited for this one may be taken
  };
  // Takes back a task.
  Finished Finish(const WindowTask& task);

  bool empty() const { return entries_.empty(); }
  bool has_untaken() const;
  // True if a task that nobody has taken could fail before `key`.
  bool HasUntakenBefore(const FailureKey& key) const;
  int64_t num_running() const { return num_running_; }
  // Bytes of the places of windows and of staged columns.
  int64_t held_bytes() const;

 private:
  // Tasks are numbered: first those that decode a chunk, then those that gather.
  struct Column {
    int64_t next = 0;            // the first task that is not taken; 0: not begun
    int64_t num_unfinished = 0;  // tasks, taken or not; 0: finished
    int64_t num_running = 0;     // taken and not finished

    bool is_in_work() const { return next > 0 && num_unfinished > 0; }
  };
  struct Entry {
    std::unique_ptr<OpenWindow> window;
    std::vector<Column> columns;
    int64_t num_untaken = 0;
    int64_t num_unfinished = 0;
    IndexSet open;          // columns with a task that is not taken
    int64_t begun_end = 0;  // no column from here on was begun
  };

  static bool IsInWork(const Entry& entry);
  std::optional<int64_t> ChooseColumn(Entry* entry, bool has_front, bool may_begin,
                                      bool may_await);

  // True if another column may begin.
  bool has_room() const { return num_columns_ < max_columns_; }

  const int64_t num_tasks_;  // of each chunk
  const std::vector<bool> is_jagged_;
  const int64_t max_columns_;
  std::list<Entry> entries_;
  int64_t num_running_ = 0;
  int64_t num_columns_ = 0;  // begun and not finished
};

}  // namespace torchparquet
