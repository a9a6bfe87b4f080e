#include "reader/windows/window_queue.h"

#include <algorithm>
#include <limits>
#include <utility>

namespace torchparquet {

void WindowQueue::Push(std::unique_ptr<OpenWindow> window) {
  std::vector<Column> columns;
  int64_t num_all = 0;
  for (int64_t index = 0; index < num_tasks_; ++index) {
    columns.push_back({.num_unfinished = window->NumTasks(index)});
    num_all += columns.back().num_unfinished;
  }
  entries_.push_back({.window = std::move(window),
                      .columns = std::move(columns),
                      .num_untaken = num_all,
                      .num_unfinished = num_all,
                      .open = IndexSet(num_tasks_)});
}

std::optional<WindowTask> WindowQueue::Take(std::optional<int64_t> front,
                                            bool may_await) {
  for (Entry& entry : entries_) {
    // Without room for more items, only the window of the batch at the front may decode
    // some: other windows would wait for the consumer, and the consumer for that batch.
    const BatchRange& batches = entry.window->batches;
    const bool has_front = !front || (batches.begin <= *front && *front < batches.end);
    // Others may keep their columns until that batch is taken, so one of its window
    // begins in any case.
    const bool may_begin = has_room() || (front && has_front && !IsInWork(entry));
    if (const auto index = ChooseColumn(&entry, has_front, may_begin, may_await)) {
      Column& column = entry.columns[static_cast<size_t>(*index)];
      if (column.next == 0) ++num_columns_;
      entry.begun_end = std::max(entry.begun_end, *index + 1);
      ++column.num_running;
      ++num_running_;
      --entry.num_untaken;
      const WindowTask task{entry.window.get(), column.next++, *index};
      if (column.next == entry.window->NumTasks(*index)) entry.open.Remove(*index);
      return task;
    }
  }
  return std::nullopt;
}

// A column that was begun and has no thread, else one that was not begun, else the one
// with the fewest threads. Gathering begins when all chunks are decoded.
std::optional<int64_t> WindowQueue::ChooseColumn(Entry* entry, bool has_front,
                                                 bool may_begin, bool may_await) {
  const int64_t num_chunks = std::ssize(entry->window->chunks);
  std::optional<int64_t> fresh;
  std::optional<int64_t> shared;
  int64_t fewest = std::numeric_limits<int64_t>::max();
  for (int64_t index = entry->open.NextFrom(0); index < num_tasks_;
       index = entry->open.NextFrom(index + 1)) {
    if (index >= entry->begun_end && (fresh || !may_begin)) break;
    const Column& column = entry->columns[static_cast<size_t>(index)];
    if (is_jagged_[static_cast<size_t>(index)] && !has_front) continue;
    const bool is_fresh = column.next == 0;
    if (is_fresh && (fresh || !may_begin)) continue;
    // Its bytes may still be on their way, or chunks that it would gather in work.
    const WindowTask next{entry->window.get(), column.next, index};
    const RemoteBlocks::Handle* handle = may_await ? nullptr : next.handle();
    if (handle != nullptr && !RemoteBlocks::IsReady(*handle)) continue;
    const int64_t num_gathers = next.window->num_gathers[static_cast<size_t>(index)];
    if (column.next == num_chunks && column.num_unfinished > num_gathers) continue;
    if (is_fresh) {
      fresh = index;
      continue;
    }
    if (column.num_running == 0) return index;
    if (column.num_running < fewest) {
      fewest = column.num_running;
      shared = index;
    }
  }
  return fresh ? fresh : shared;
}

WindowQueue::Finished WindowQueue::Finish(const WindowTask& task) {
  const bool had_room = has_room();
  --num_running_;
  const auto entry = std::ranges::find_if(entries_, [&](const Entry& candidate) {
    return candidate.window.get() == task.window;
  });
  Column& column = entry->columns[static_cast<size_t>(task.index)];
  --column.num_running;
  const int64_t num_gathers = entry->window->num_gathers[static_cast<size_t>(task.index)];
  // The last chunk of a column opens the tasks that gather it.
  const bool is_decoded = --column.num_unfinished == num_gathers && num_gathers > 0;
  if (column.num_unfinished == 0) --num_columns_;
  Finished finished;
  finished.frees_others = is_decoded || (!had_room && has_room());
  if (--entry->num_unfinished == 0) {
    finished.window = std::move(entry->window);
    entries_.erase(entry);
  }
  return finished;
}

int64_t WindowQueue::held_bytes() const {
  int64_t num_bytes = 0;
  for (const Entry& entry : entries_) {
    const int64_t num_places = entry.window->places.num_places();
    num_bytes += entry.window->places.num_bytes();
    for (size_t i = 0; i < entry.columns.size(); ++i) {
      const WindowCells* cells =
          i < entry.window->cells.size() ? entry.window->cells[i].get() : nullptr;
      if (entry.columns[i].is_in_work() && cells != nullptr)
        num_bytes += cells->StagedBytes(num_places);
    }
  }
  return num_bytes;
}

bool WindowQueue::IsInWork(const Entry& entry) {
  return std::ranges::any_of(entry.columns, &Column::is_in_work);
}

bool WindowQueue::HasUntakenBefore(const FailureKey& key) const {
  for (const Entry& entry : entries_) {
    for (int64_t index = entry.open.NextFrom(0); index < num_tasks_;
         index = entry.open.NextFrom(index + 1)) {
      const int64_t next = entry.columns[static_cast<size_t>(index)].next;
      if (entry.window->KeyOf(next, index) < key) return true;
    }
  }
  return false;
}

bool WindowQueue::has_untaken() const {
  return std::ranges::any_of(entries_,
                             [](const Entry& entry) { return entry.num_untaken > 0; });
}

}  // namespace torchparquet
