#pragma once

#include <cstdint>
#include <list>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "windows/open_window.h"

namespace torchparquet {

// The windows in work, in plan order. A window's tasks are taken column by column, so
// that few columns have memory of their own at once. To be used under one lock.
class WindowQueue {
 public:
  // `is_jagged` says of each of a chunk's tasks whether it decodes items of different
  // lengths. At most `max_columns` are in work at once.
  WindowQueue(int64_t num_tasks, std::vector<bool> is_jagged, int64_t max_columns)
      : num_tasks_(num_tasks),
        is_jagged_(std::move(is_jagged)),
        max_columns_(max_columns) {}

  void Push(std::unique_ptr<OpenWindow> window);

  // The next task of the first window that has one. Each thread has a column of its own
  // as long as there are enough: what another core has written or read before costs more
  // to write to. With `front`, the number of a batch, tasks that decode items of
  // different lengths have to wait but for those of windows with it.
  std::optional<WindowTask> Take(std::optional<int64_t> front = std::nullopt);
  // Takes back a task. Returns the window when that was the last one of it.
  std::unique_ptr<OpenWindow> Finish(const WindowTask& task);
  // Whether a column may be begun beside those in work.
  bool has_room() const { return num_columns_ < max_columns_; }

  bool empty() const { return entries_.empty(); }
  bool has_untaken() const;
  int64_t num_running() const { return num_running_; }
  // Of the windows' places, and of the columns that are staged.
  int64_t held_bytes() const;

 private:
  struct Column {
    int64_t next_chunk = 0;
    int64_t num_unfinished = 0;  // of its chunks
    int64_t num_running = 0;
  };
  struct Entry {
    std::unique_ptr<OpenWindow> window;
    std::vector<Column> columns;
    int64_t num_untaken = 0;
    int64_t num_unfinished = 0;
    int64_t first_column = 0;  // with a chunk that is not taken
  };

  std::optional<int64_t> ChooseColumn(Entry* entry, bool has_front);

  const int64_t num_tasks_;  // of each chunk
  const std::vector<bool> is_jagged_;
  const int64_t max_columns_;
  std::list<Entry> entries_;
  int64_t num_running_ = 0;
  int64_t num_columns_ = 0;  // begun and not finished
};

}  // namespace torchparquet
