#include "parallel_reader.h"

#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <exception>
#include <string>
#include <utility>

#include "errors.h"

namespace torchparquet {
namespace {

using Clock = std::chrono::steady_clock;

int64_t NumTasks(const ReaderSpec& spec) {
  return static_cast<int64_t>(spec.columns.size()) + (spec.row_id_field >= 0) +
         (spec.row_valid_field >= 0);
}

BatchMap MakeBatchMap(const ReaderSpec& spec) {
  std::vector<int64_t> chunk_rows;
  int64_t num_rows = 0;
  for (const Chunk& chunk : spec.share.chunks) {
    chunk_rows.push_back(chunk.rows.num_rows);
    num_rows += chunk.rows.num_rows;
  }
  return spec.batch_rows > 0 ? BatchMap::FixedSize(num_rows, spec.batch_rows)
                             : BatchMap::PerChunk(chunk_rows);
}

MemoryPlan MakeMemoryPlan(const ReaderSpec& spec, const BatchLayout& layout,
                          const BatchMap& batches) {
  int64_t max_chunk_rows = 0;
  for (const Chunk& chunk : spec.share.chunks) {
    max_chunk_rows = std::max(max_chunk_rows, chunk.rows.num_rows);
  }
  return PlanMemory({.slab_bytes = layout.slab_bytes,
                     .batch_rows = layout.capacity_rows,
                     .max_chunk_rows = max_chunk_rows,
                     .num_batches = batches.num_batches(),
                     .num_tasks = NumTasks(spec),
                     .num_threads = spec.num_threads,
                     .max_memory_bytes = spec.max_memory_bytes});
}

void CheckField(const ReaderSpec& spec, int64_t field, int64_t element) {
  const auto num_fields = static_cast<int64_t>(spec.fields.size());
  if (field < 0 || field >= num_fields || element < 0 ||
      element >= spec.fields[static_cast<size_t>(field)].width) {
    throw Error(ErrorKind::kInvalidArgument, "a column's place is outside the fields");
  }
}

// Row ids and the like are wanted, as plain fields of that size, or not (below 0).
void CheckMadeUpField(const ReaderSpec& spec, int64_t field, int64_t item_bytes) {
  if (field < 0) return;
  CheckField(spec, field, 0);
  const FieldSpec& found = spec.fields[static_cast<size_t>(field)];
  if (found.item_bytes != item_bytes || found.width != 1) {
    throw Error(ErrorKind::kInvalidArgument,
                "a field has not the shape of what it is for");
  }
}

ReaderSpec Checked(ReaderSpec spec) {
  if (NumTasks(spec) == 0) {
    throw Error(ErrorKind::kInvalidArgument, "a reader needs at least one column");
  }
  if (spec.num_threads < 1) {
    throw Error(ErrorKind::kInvalidArgument,
                "num_threads must be at least 1: " + std::to_string(spec.num_threads));
  }
  for (const ColumnSpec& column : spec.columns)
    CheckField(spec, column.field, column.element);
  CheckMadeUpField(spec, spec.row_id_field, sizeof(int64_t));
  CheckMadeUpField(spec, spec.row_valid_field, sizeof(bool));
  const auto num_files = static_cast<int64_t>(spec.files.size());
  for (const Chunk& chunk : spec.share.chunks) {
    if (chunk.file < 0 || chunk.file >= num_files || chunk.rows.begin < 0 ||
        chunk.rows.num_rows < 0) {
      throw Error(ErrorKind::kInvalidArgument,
                  "a chunk of the share is outside the files");
    }
  }
  return spec;
}

}  // namespace

std::shared_ptr<SlabPool> ParallelReader::ChoosePool(std::shared_ptr<SlabPool> offered,
                                                     const State& state) {
  if (state.spec.lent_slabs) return nullptr;
  const int64_t slab_bytes = state.layout.slab_bytes;
  if (offered != nullptr && offered->slab_bytes() == slab_bytes) return offered;
  return SlabPool::Make(slab_bytes, state.memory.max_slabs * slab_bytes);
}

ParallelReader::State::State(ReaderSpec reader_spec, std::shared_ptr<SlabPool> slab_pool)
    : spec(Checked(std::move(reader_spec))),
      batches(MakeBatchMap(spec)),
      layout(
          MakeBatchLayout(spec.fields, std::max<int64_t>(1, batches.max_batch_rows()))),
      memory(MakeMemoryPlan(spec, layout, batches)),
      pool(ChoosePool(std::move(slab_pool), *this)),
      files(spec.files),
      ring(batches.num_batches(), memory.max_slabs),
      walk(&spec.share, memory.max_slice_rows) {}

ParallelReader::ParallelReader(ReaderSpec spec, std::shared_ptr<SlabPool> pool)
    : owner_pid_(getpid()),
      state_(std::make_unique<State>(std::move(spec), std::move(pool))) {}

ParallelReader::~ParallelReader() {
  if (getpid() != owner_pid_) {
    static_cast<void>(state_.release());
    return;
  }
  Stop();
}

void ParallelReader::CheckProcess() const {
  if (getpid() == owner_pid_) return;
  throw Error(
      ErrorKind::kStopped,
      "this iterator was begun in another process and its threads did not survive the "
      "fork; begin a new iteration in this process");
}

void ParallelReader::Start() {
  State& state = *state_;
  const std::lock_guard lock(state.lifecycle);
  if (state.started) return;
  state.started = true;
  for (int64_t i = 0; i < state.spec.num_threads; ++i) {
    try {
      state.threads.emplace_back(&ParallelReader::Work, &state);
    } catch (const std::exception& error) {
      // Fewer threads than wanted still deliver every batch; none cannot.
      if (i > 0) return;
      state.started = false;
      throw Error(ErrorKind::kOutOfMemory,
                  std::string("the system starts no thread: ") + error.what());
    }
  }
}

BatchRing::TakeResult ParallelReader::Next(std::chrono::milliseconds timeout) {
  CheckProcess();
  const auto begin = Clock::now();
  Start();
  BatchRing::TakeResult result = state_->ring.Take(timeout);
  if (result.status == BatchRing::TakeStatus::kTaken) {
    // Under the lock, so that no thread decides to wait between the batch's leaving
    // and the notification.
    const std::lock_guard lock(state_->mutex);
    if (CanOpen(*state_)) state_->work.notify_all();
  }
  const std::lock_guard lock(stats_mutex_);
  stats_.batches += result.status == BatchRing::TakeStatus::kTaken;
  stats_.rows += result.num_rows;
  stats_.wait_seconds += std::chrono::duration<double>(Clock::now() - begin).count();
  return result;
}

void ParallelReader::Lend(uint8_t* data, int64_t token) {
  CheckProcess();
  const std::lock_guard lock(state_->mutex);
  state_->lent.push_back({.data = data, .slab = {}, .lent_token = token});
  if (CanOpen(*state_)) state_->work.notify_all();
}

void ParallelReader::Stop() {
  if (getpid() != owner_pid_) return;
  State& state = *state_;
  state.ring.Stop();
  {
    const std::lock_guard lock(state.mutex);
    state.stopping = true;
  }
  state.work.notify_all();
  const std::lock_guard lock(state.lifecycle);
  state.started = true;  // a reader that was stopped starts no thread any more
  for (std::thread& thread : state.threads) thread.join();
  state.threads.clear();
  state.files.Close();
}

ReaderStats ParallelReader::stats() const {
  if (getpid() != owner_pid_) return {};
  const std::lock_guard lock(stats_mutex_);
  const std::lock_guard state_lock(state_->mutex);
  ReaderStats stats = stats_;
  stats.decode_seconds = std::chrono::duration<double>(state_->decode_time).count();
  return stats;
}

void ParallelReader::Work(State* state) {
  DecodeScratch scratch;
  std::unique_lock lock(state->mutex);
  while (const auto task = NextTask(state, lock)) {
    lock.unlock();
    const auto begin = Clock::now();
    RunTask(state, *task, &scratch);
    const auto duration = Clock::now() - begin;
    lock.lock();
    state->decode_time += duration;
    FinishTask(state, *task);
  }
}

// The first column of the earliest slice that nobody has taken yet. Waits while all
// are taken and the next slice has no room. Nothing when there is no more to do.
std::optional<ParallelReader::Task> ParallelReader::NextTask(
    State* state, std::unique_lock<std::mutex>& lock) {
  const int64_t num_tasks = NumTasks(state->spec);
  while (!state->stopping) {
    for (OpenSlice& slice : state->slices) {
      if (slice.next_task == num_tasks) continue;
      ++state->running_tasks;
      return Task{&slice, slice.next_task++};
    }
    if (state->failed || !state->walk.next()) return std::nullopt;
    if (!CanOpen(*state)) {
      state->work.wait(lock);
    } else if (OpenNextSlice(state)) {
      state->work.notify_all();
    }
  }
  return std::nullopt;
}

// Number of batches that opening `slice` would add.
int64_t ParallelReader::NewBatches(const State& state, const Slice& slice) {
  const int64_t last_row = slice.share_row + slice.chunk.rows.num_rows - 1;
  return state.batches.Locate(last_row).batch + 1 - state.ring.num_opened();
}

bool ParallelReader::CanOpen(const State& state) {
  if (!state.walk.next()) return false;
  const int64_t new_batches = NewBatches(state, *state.walk.next());
  if (state.spec.lent_slabs && static_cast<int64_t>(state.lent.size()) < new_batches)
    return false;
  return state.ring.HasRoom(new_batches);
}

BatchMemory ParallelReader::TakeMemory(State* state) {
  BatchMemory memory;
  if (state->spec.lent_slabs) {
    memory = std::move(state->lent.front());
    state->lent.pop_front();
  } else {
    memory.slab = state->pool->Acquire();
    memory.data = memory.slab.data();
  }
  return memory;
}

// Opens the walk's next slice and the batches that it is the first to touch. Returns
// false, with the failure recorded, when there is no memory for them.
bool ParallelReader::OpenNextSlice(State* state) {
  OpenSlice open{.slice = *state->walk.next(), .number = state->num_slices};
  const int64_t num_tasks = NumTasks(state->spec);
  const BatchPlace first = state->batches.Locate(open.slice.share_row);
  open.first_batch = first.batch;
  open.tasks_left = num_tasks;
  try {
    int64_t batch = first.batch;
    int64_t row = first.row;
    for (int64_t left = open.slice.chunk.rows.num_rows; left > 0; ++batch, row = 0) {
      const int64_t batch_rows = state->batches.BatchRows(batch);
      if (batch == state->ring.num_opened()) {
        state->last_batch =
            &state->ring.Open(TakeMemory(state), batch_rows, batch_rows * num_tasks);
      }
      const int64_t count = std::min(left, batch_rows - row);
      open.spans.push_back({state->last_batch, row, count});
      left -= count;
    }
    state->slices.push_back(std::move(open));
  } catch (...) {
    state->ring.Fail({open.first_batch, open.number, 0}, CurrentErrorAt({}));
    state->failed = true;
    if (state->running_tasks == 0 && state->slices.empty()) state->ring.Close();
    return false;
  }
  ++state->num_slices;
  state->walk.Advance();
  return true;
}

// Counts a task's cells down, batch after batch.
class ParallelReader::TaskProgress : public DecodeProgress {
 public:
  TaskProgress(State* state, const OpenSlice& slice) : state_(state), slice_(slice) {}

  void SegmentDone() override {
    const OpenSlice::Span& span = slice_.spans[num_done_++];
    state_->ring.CountDown(*span.batch, span.num_rows);
    if (state_->stopping) throw Error(ErrorKind::kStopped, "the reader was closed");
  }

  int64_t num_done() const { return static_cast<int64_t>(num_done_); }

 private:
  State* state_;
  const OpenSlice& slice_;
  size_t num_done_ = 0;
};

std::vector<Segment> ParallelReader::SegmentsOf(const State& state, const Task& task) {
  const auto num_columns = static_cast<int64_t>(state.spec.columns.size());
  int64_t field = state.spec.row_valid_field;
  int64_t element = 0;
  if (task.index < num_columns) {
    const ColumnSpec& column = state.spec.columns[static_cast<size_t>(task.index)];
    field = column.field;
    element = column.element;
  } else if (task.index == num_columns && state.spec.row_id_field >= 0) {
    field = state.spec.row_id_field;
  }
  const FieldPlace& place = state.layout.fields[static_cast<size_t>(field)];
  std::vector<Segment> segments;
  segments.reserve(task.slice->spans.size());
  for (const OpenSlice::Span& span : task.slice->spans) {
    const int64_t item = span.first_row * place.width + element;
    uint8_t* slab = span.batch->memory.data;
    Segment segment{.values = slab + place.values_offset + item * place.item_bytes,
                    .num_rows = span.num_rows};
    if (place.valid_offset >= 0) segment.valid = slab + place.valid_offset + item;
    segments.push_back(segment);
  }
  return segments;
}

void ParallelReader::FillRowIds(const OpenSlice& slice,
                                std::span<const Segment> segments) {
  int64_t row_id = slice.slice.chunk.first_row_id;
  for (const Segment& segment : segments) {
    // Fields are aligned to 64 bytes.
    auto* out = reinterpret_cast<int64_t*>(segment.values);
    for (int64_t i = 0; i < segment.num_rows; ++i) out[i] = row_id++;
  }
}

void ParallelReader::RunTask(State* state, const Task& task, DecodeScratch* scratch) {
  const OpenSlice& slice = *task.slice;
  const Chunk& chunk = slice.slice.chunk;
  const auto num_columns = static_cast<int64_t>(state->spec.columns.size());
  TaskProgress progress(state, slice);
  try {
    const std::vector<Segment> segments = SegmentsOf(*state, task);
    if (task.index < num_columns) {
      const ColumnSpec& column = state->spec.columns[static_cast<size_t>(task.index)];
      const ColumnTarget target{
          .segments = segments,
          .stride = state->spec.fields[static_cast<size_t>(column.field)].width,
          .item_bytes = state->spec.fields[static_cast<size_t>(column.field)].item_bytes,
          .nulls = column.nulls,
          .fill_bits = column.fill_bits};
      std::shared_ptr<const ParquetFile> file;
      try {
        file = state->files.Open(chunk.file);
      } catch (...) {
        throw CurrentErrorAt({.path = state->files.path(chunk.file)});
      }
      DecodeColumn(*file, column.source, chunk.rows, target, scratch, &progress);
      return;
    }
    if (task.index == num_columns && state->spec.row_id_field >= 0) {
      FillRowIds(slice, segments);
    } else {
      for (const Segment& segment : segments) {
        std::memset(segment.values, chunk.valid, static_cast<size_t>(segment.num_rows));
      }
    }
    for (size_t i = 0; i < segments.size(); ++i) progress.SegmentDone();
  } catch (...) {
    const std::lock_guard lock(state->mutex);
    if (state->stopping) return;
    state->failed = true;
    state->ring.Fail({slice.first_batch + progress.num_done(), slice.number, task.index},
                     CurrentErrorAt({}));
  }
}

// After a failure no slice is opened any more; when the last task of those that are
// open has ended, what failed first in the order is known.
void ParallelReader::FinishTask(State* state, const Task& task) {
  --state->running_tasks;
  if (--task.slice->tasks_left == 0) {
    state->slices.remove_if([&](const OpenSlice& slice) { return &slice == task.slice; });
  }
  if (!state->failed) return;
  if (state->slices.empty()) state->ring.Close();
  state->work.notify_all();
}

}  // namespace torchparquet
