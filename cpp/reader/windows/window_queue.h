#pragma once

#include <cstdint>
#include <functional>
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
//   not begun --Take--> chunks are decoded --Finish of the last--> gathered --> finished
//             (room)    by one thread each                         in parts
class WindowQueue {
 public:
  // `is_jagged` says, by task of a chunk, if it decodes items of different lengths. At
  // most `max_columns` columns are in work at once.
  WindowQueue(int64_t num_tasks, std::vector<bool> is_jagged, int64_t max_columns)
      : num_tasks_(num_tasks),
        is_jagged_(std::move(is_jagged)),
        max_columns_(max_columns) {}

  void Push(std::unique_ptr<OpenWindow> window);

  // Says if the bytes of a chunk's column are there.
  using IsReady = std::function<bool(const Chunk&, int64_t index)>;

  // Takes the next task of the first window that has one. Each thread has a column of its
  // own while there are enough: memory that another core has touched costs more to write
  // to. With `front`, the number of a batch, tasks that decode items of different lengths
  // must belong to a window with that batch. Takes only what is ready where that is
  // asked.
  std::optional<WindowTask> Take(std::optional<int64_t> front = std::nullopt,
                                 const IsReady& is_ready = nullptr);
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
  struct Column {
    int64_t next = 0;  // task
    int64_t num_unfinished = 0;
    int64_t num_running = 0;
  };
  struct Entry {
    std::unique_ptr<OpenWindow> window;
    std::vector<Column> columns;
    int64_t num_untaken = 0;
    int64_t num_unfinished = 0;
    IndexSet open;          // columns with a task that is not taken
    int64_t begun_end = 0;  // no column from here on was begun
  };

  std::optional<int64_t> ChooseColumn(Entry* entry, bool has_front,
                                      const IsReady& is_ready);

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
