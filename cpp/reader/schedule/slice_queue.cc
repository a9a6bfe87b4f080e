#include "reader/schedule/slice_queue.h"

#include <algorithm>
#include <utility>

namespace torchparquet {

SliceQueue::SliceQueue(int64_t num_tasks, int64_t max_held_bytes,
                       std::vector<ColumnBuffers> spare)
    : num_tasks_(num_tasks),
      max_held_bytes_(max_held_bytes),
      has_long_pages_(static_cast<size_t>(num_tasks)) {
  for (ColumnBuffers& buffers : spare) KeepSpare(&buffers);
}

// Changes nothing if there is no memory for the slice.
void SliceQueue::Push(OpenSlice slice) {
  const int64_t chunk_number = slice.slice.chunk_number;
  std::shared_ptr<OpenChunk>& last_chunk = last_chunks_[slice.slice.lane];
  std::shared_ptr<OpenChunk> chunk = last_chunk;
  if (chunk == nullptr || chunk->number != chunk_number) {
    chunk = std::make_shared<OpenChunk>();
    chunk->number = chunk_number;
    chunk->columns.resize(static_cast<size_t>(num_tasks_));
  }
  Entries pushed;
  Entry& entry = pushed.emplace_back(std::move(slice), num_tasks_);
  entry.place = pushed.begin();
  entry.chunk = chunk;
  for (Column& column : chunk->columns) Count(&column, 1, 0);
  entries_.splice(entries_.end(), pushed);
  last_chunk = std::move(chunk);
  if (first_open_ == entries_.end()) first_open_ = entry.place;
}

std::optional<SliceTask> SliceQueue::Take(Choice choice,
                                          const std::optional<Pressure>& pressure,
                                          bool may_await) {
  ++num_takes_;
  if (choice == Choice::kUnshared && num_unshared_ == 0) return std::nullopt;
  for (auto place = first_open_; place != entries_.end(); ++place) {
    Entry& entry = *place;
    for (int64_t index = entry.untaken.NextFrom(0); index < num_tasks_;
         index = entry.untaken.NextFrom(index + 1)) {
      const auto i = static_cast<size_t>(index);
      const bool is_alone = choice == Choice::kUnshared || has_long_pages_[i];
      if (is_alone && entry.chunk->columns[i].num_running > 0) continue;
      if (pressure && MustWait(entry, index, *pressure)) continue;
      if (!may_await && AwaitsBytes(&entry, i)) continue;
      return TakeFrom(&entry, index);
    }
  }
  return std::nullopt;
}

// Bytes may come at any moment. A column that was not ready in one slice is not looked at
// in later ones, since slices of a column are taken in order.
bool SliceQueue::AwaitsBytes(Entry* entry, size_t index) const {
  if (index >= entry->handles.size()) return false;
  Column& column = entry->chunk->columns[index];
  if (column.unready_at == num_takes_) return true;
  if (RemoteBlocks::IsReady(entry->handles[index])) return false;
  column.unready_at = num_takes_;
  return true;
}

bool SliceQueue::MustWait(const Entry& entry, int64_t index, const Pressure& pressure) {
  if (!(*pressure.waits)[static_cast<size_t>(index)]) return false;
  const auto span = static_cast<size_t>(NumSpansDone(entry, index));
  return entry.spans[span].batch != pressure.front;
}

int64_t SliceQueue::NumSpansDone(const Entry& entry, int64_t index) {
  const auto paused = entry.paused.find(index);
  return paused == entry.paused.end() ? 0 : paused->second.num_spans_done;
}

bool SliceQueue::HasUntakenBefore(const FailureKey& key) const {
  for (Entries::const_iterator place = first_open_; place != entries_.end(); ++place) {
    const Entry& entry = *place;
    if (entry.first_batch > key.batch) return false;  // as are all that follow
    for (int64_t index = entry.untaken.NextFrom(0); index < num_tasks_;
         index = entry.untaken.NextFrom(index + 1)) {
      if (entry.KeyOf(NumSpansDone(entry, index), index) < key) return true;
    }
  }
  return false;
}

// Changes the numbers of the column's tasks that nobody has taken, and that run.
void SliceQueue::Count(Column* column, int64_t untaken, int64_t running) {
  num_unshared_ -= column->is_unshared() ? 1 : 0;
  column->num_untaken += untaken;
  column->num_running += running;
  num_running_ += running;
  num_unshared_ += column->is_unshared() ? 1 : 0;
}

SliceTask SliceQueue::TakeFrom(Entry* entry, int64_t index) {
  const auto i = static_cast<size_t>(index);
  entry->untaken.Remove(index);
  while (first_open_ != entries_.end() && first_open_->untaken.is_empty()) ++first_open_;
  Column& column = entry->chunk->columns[i];
  Count(&column, -1, 1);
  column.last_taken = entry->slice.ends_chunk;
  SliceTask task{.slice = entry, .index = index};
  if (i < entry->handles.size()) task.handle = std::move(entry->handles[i]);
  if (const auto found = entry->paused.find(index); found != entry->paused.end()) {
    Paused& paused = found->second;
    task.num_spans_done = paused.num_spans_done;
    task.reader = std::move(paused.reader);
    task.place = paused.place;
    entry->paused.erase(found);
    if (task.reader == nullptr)
      task.buffers = TakeSpare();
    else
      Release(*task.reader);
    return task;
  }
  // Slices of a column are taken in order, so no reader and no kept place is past the
  // first row of the slice.
  if (column.idle != nullptr) {
    task.reader = TakeIdle(&column);
    return task;
  }
  task.place = column.place;
  task.buffers = TakeSpare();
  return task;
}

ColumnBuffers SliceQueue::TakeSpare() {
  if (spare_.empty()) return {};
  ColumnBuffers buffers = std::move(spare_.back());
  spare_.pop_back();
  held_bytes_ -= buffers.num_bytes();
  return buffers;
}

SliceQueue::Entry& SliceQueue::EntryOf(const SliceTask& task) {
  // All slices of tasks are entries, which only the queue changes.
  return const_cast<Entry&>(static_cast<const Entry&>(*task.slice));
}

// Later slices may have gone on with the column during this task, so its reader is kept
// apart from theirs.
SliceTask SliceQueue::Pause(SliceTask task) {
  Entry& entry = EntryOf(task);
  Column& column = entry.chunk->columns[static_cast<size_t>(task.index)];
  Count(&column, 1, -1);
  Paused paused{.num_spans_done = task.num_spans_done,
                .reader = nullptr,
                .place = task.reader->place()};
  Learn(task, &column);
  const auto i = static_cast<size_t>(task.index);
  if (i < entry.handles.size()) entry.handles[i] = std::move(task.handle);
  if (Hold(*task.reader)) paused.reader = std::move(task.reader);
  entry.paused.emplace(task.index, std::move(paused));
  entry.untaken.Add(task.index);
  if (first_open_ == entries_.end() || entry.number < first_open_->number) {
    first_open_ = entry.place;
  }
  return task;
}

std::unique_ptr<ColumnReader> SliceQueue::TakeIdle(Column* column) {
  if (column->idle != nullptr) Release(*column->idle);
  return std::move(column->idle);
}

bool SliceQueue::MayHold(int64_t num_bytes) const {
  return held_bytes_ + num_bytes <= max_held_bytes_;
}

// Counts an idle reader. Returns false if there is no room for it.
bool SliceQueue::Hold(const ColumnReader& reader) {
  const int64_t num_bytes = reader.held_bytes();
  if (IsLarge(reader)) {
    if (large_bytes_ > 0) return false;
    large_bytes_ = num_bytes;
    return true;
  }
  if (!MayHold(num_bytes)) return false;
  held_bytes_ += num_bytes;
  return true;
}

void SliceQueue::Release(const ColumnReader& reader) {
  (IsLarge(reader) ? large_bytes_ : held_bytes_) -= reader.held_bytes();
}

// True if beginning within the reader's page takes long, or would happen in each slice.
bool SliceQueue::HasLongPage(const ColumnReader& reader) const {
  constexpr int64_t kLongBytes = int64_t{8} << 20;
  return reader.restart_bytes() > std::min(kLongBytes, max_held_bytes_);
}

bool SliceQueue::IsLarge(const ColumnReader& reader) const {
  return HasLongPage(reader) && reader.held_bytes() > max_held_bytes_;
}

// Each thread that shared a column whose slices end in the same long page would read that
// page, and hold it.
void SliceQueue::Learn(const SliceTask& task, Column* column) {
  const int64_t page = task.reader->place().offset;
  if (!HasLongPage(*task.reader)) return;
  if (std::exchange(column->ended_in, page) != page) return;
  has_long_pages_[static_cast<size_t>(task.index)] = true;
}

SliceTask SliceQueue::Finish(SliceTask task) {
  Entry& entry = EntryOf(task);
  Column& column = entry.chunk->columns[static_cast<size_t>(task.index)];
  Count(&column, 0, -1);
  if (task.reader != nullptr) {
    Learn(task, &column);
    Keep(&task, &column);
  } else {
    KeepSpare(&task.buffers);  // a generated column needs none
  }
  if (--entry.num_unfinished == 0) entries_.erase(entry.place);
  return task;
}

// Keeps the reader for later slices if there is room; of two readers, the one that is
// further on. A reader that is not wanted leaves its buffers to the next chunk.
void SliceQueue::Keep(SliceTask* task, Column* column) {
  const PagePlace place = task->reader->place();
  if (place.first_row > column->place.first_row) column->place = place;
  // The task of the chunk's last slice took the idle reader, so none remains.
  const bool is_behind =
      column->idle != nullptr && column->idle->row() > task->reader->row();
  if (column->last_taken || is_behind) {
    task->buffers = task->reader->TakeBuffers();
    KeepSpare(&task->buffers);
    return;
  }
  std::unique_ptr<ColumnReader> replaced = TakeIdle(column);
  if (replaced != nullptr) {
    task->buffers = replaced->TakeBuffers();
    KeepSpare(&task->buffers);
  }
  if (Hold(*task->reader)) {
    column->idle = std::exchange(task->reader, std::move(replaced));
  }
}

// Adds the buffers to the spare ones if they hold memory and there is room.
void SliceQueue::KeepSpare(ColumnBuffers* buffers) {
  const int64_t num_bytes = buffers->num_bytes();
  if (num_bytes == 0 || !MayHold(num_bytes)) return;
  held_bytes_ += num_bytes;
  spare_.push_back(std::move(*buffers));
}

std::vector<ColumnBuffers> SliceQueue::Clear() {
  entries_.clear();
  first_open_ = entries_.end();
  last_chunks_.clear();
  held_bytes_ = large_bytes_ = 0;
  return std::exchange(spare_, {});
}

}  // namespace torchparquet
