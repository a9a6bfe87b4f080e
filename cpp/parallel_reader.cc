#include "parallel_reader.h"

#include <unistd.h>

#include <algorithm>
#include <exception>
#include <string>
#include <utility>

#include "errors.h"

namespace torchparquet {
namespace {

using Clock = std::chrono::steady_clock;

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
  // What rows are likely to have of items makes batches larger, but none impossible: by
  // what footers claim they may have more bytes than can be counted.
  double row_bytes = 0;
  for (const FieldSpec& field : spec.fields) row_bytes += field.row_bytes;
  const double batch_items_bytes = row_bytes * static_cast<double>(layout.capacity_rows);
  const int64_t room =
      std::max<int64_t>(spec.max_memory_bytes / 2 - layout.slab_bytes, 0);
  const int64_t items_bytes =
      std::min(static_cast<int64_t>(std::min(batch_items_bytes, 0x1p62)), room);
  return PlanMemory({.slab_bytes = layout.slab_bytes + items_bytes,
                     .batch_rows = layout.capacity_rows,
                     .max_chunk_rows = max_chunk_rows,
                     .num_batches = batches.num_batches(),
                     .num_tasks = spec.num_tasks(),
                     .num_threads = spec.num_threads,
                     .max_memory_bytes = spec.max_memory_bytes});
}

ReaderSpec Checked(ReaderSpec spec) {
  CheckReaderSpec(spec);
  // A page may be larger than batches need, but not by what is claimed alone.
  constexpr int64_t kMinPageBytes = int64_t{64} << 20;
  for (ColumnSpec& column : spec.columns) {
    column.source.max_page_bytes = std::max(spec.max_memory_bytes, kMinPageBytes);
  }
  return spec;
}

std::vector<double> RowBytes(const ReaderSpec& spec) {
  std::vector<double> row_bytes;
  for (const FieldSpec& field : spec.fields) {
    if (field.num_offsets > 0) row_bytes.push_back(field.row_bytes);
  }
  return row_bytes;
}

std::vector<bool> AreJagged(const ReaderSpec& spec) {
  std::vector<bool> are_jagged(static_cast<size_t>(spec.num_tasks()));
  for (size_t i = 0; i < spec.columns.size(); ++i) {
    const auto field = static_cast<size_t>(spec.columns[i].field);
    are_jagged[i] = spec.fields[field].num_offsets > 0;
  }
  return are_jagged;
}

// What items in flight may take: what slabs and column readers leave.
int64_t MaxItemsBytes(const ReaderSpec& spec, const BatchLayout& layout,
                      const MemoryPlan& memory) {
  const int64_t rest = spec.max_memory_bytes - memory.max_slabs * layout.slab_bytes;
  return rest - rest / 4;
}

// With items of variable length, their share of the rest is not for column readers.
int64_t MaxHeldBytes(const ReaderSpec& spec, const BatchLayout& layout,
                     const MemoryPlan& memory) {
  if (layout.jagged_fields.empty()) return memory.max_held_bytes;
  const int64_t rest = spec.max_memory_bytes - memory.max_slabs * layout.slab_bytes;
  return std::min(memory.max_held_bytes, rest / 4);
}

std::shared_ptr<SinkPool> ChooseSinks(std::shared_ptr<SinkPool> offered,
                                      const ReaderSpec& spec) {
  const int64_t max_bytes = spec.max_memory_bytes;
  if (offered != nullptr && offered->max_sink_bytes() == max_bytes) return offered;
  return SinkPool::Make(max_bytes / 4, max_bytes);
}

}  // namespace

std::shared_ptr<SlabPool> ParallelReader::ChoosePool(std::shared_ptr<SlabPool> offered,
                                                     const State& state) {
  if (state.spec.lent_slabs) return nullptr;
  const int64_t slab_bytes = state.layout.slab_bytes;
  if (offered != nullptr && offered->slab_bytes() == slab_bytes) return offered;
  return SlabPool::Make(slab_bytes, state.memory.max_slabs * slab_bytes);
}

ParallelReader::State::State(ReaderSpec reader_spec, std::shared_ptr<SlabPool> slab_pool,
                             std::shared_ptr<SinkPool> sink_pool)
    : spec(Checked(std::move(reader_spec))),
      batches(MakeBatchMap(spec)),
      layout(
          MakeBatchLayout(spec.fields, std::max<int64_t>(1, batches.max_batch_rows()))),
      memory(MakeMemoryPlan(spec, layout, batches)),
      pool(ChoosePool(std::move(slab_pool), *this)),
      is_jagged(AreJagged(spec)),
      jagged(RowBytes(spec), MaxItemsBytes(spec, layout, memory),
             ChooseSinks(std::move(sink_pool), spec)),
      files(spec.files),
      ring(batches.num_batches(), memory.max_slabs),
      runner({.spec = &spec,
              .layout = &layout,
              .files = &files,
              .jagged = &jagged,
              .ring = &ring,
              .stopping = &stopping}),
      walk(&spec.share,
           {.max_rows = memory.max_slice_rows, .batch_rows = spec.batch_rows}),
      slices(spec.num_tasks(), MaxHeldBytes(spec, layout, memory)) {}

ParallelReader::ParallelReader(ReaderSpec spec, std::shared_ptr<SlabPool> pool,
                               std::shared_ptr<SinkPool> sinks)
    : owner_pid_(getpid()),
      state_(
          std::make_unique<State>(std::move(spec), std::move(pool), std::move(sinks))) {}

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
      state.threads.emplace_back(&ParallelReader::Work, &state,
                                 i > 0 && i + 1 == state.spec.num_threads);
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
    state_->jagged.Forget(result.items);
    // Under the lock, so that no thread decides to wait between the batch's leaving
    // and the notification.
    const std::lock_guard lock(state_->mutex);
    const bool may_go_on = !state_->layout.jagged_fields.empty();
    if (may_go_on || CanOpen(*state_) || !HasEnough(*state_)) state_->work.notify_all();
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
  {
    const std::lock_guard state_lock(state.mutex);
    state.slices.Clear();
  }
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

void ParallelReader::Work(State* state, bool is_spare) {
  DecodeScratch scratch;
  std::unique_lock lock(state->mutex);
  while (auto task = NextTask(state, lock, is_spare)) {
    lock.unlock();
    const auto begin = Clock::now();
    const bool is_paused = !RunTask(state, &*task, &scratch);
    const auto duration = Clock::now() - begin;
    lock.lock();
    state->decode_time += duration;
    SliceTask given_up = is_paused ? state->slices.Pause(std::move(*task))
                                   : FinishTask(state, std::move(*task));
    if (given_up.reader == nullptr && given_up.buffers.num_bytes() == 0) continue;
    lock.unlock();
    given_up = {};
    lock.lock();
  }
}

// Whether the consumer has so many complete batches before it that it needs the core of
// the last thread more than further ones. On two cores, with a consumer that reads what
// it gets, this is worth 9 % on uncompressed files and nothing on zstd.
bool ParallelReader::HasEnough(const State& state) {
  constexpr int64_t kEnoughBatches = 16;
  return state.ring.num_complete() >=
         std::clamp<int64_t>(state.memory.max_slabs / 4, 1, kEnoughBatches);
}

// After a failure, with nothing running and nothing to be taken: what still waits for
// memory would decode batches behind the failed one, which nobody can take.
bool ParallelReader::CloseIfFinal(State* state) {
  if (state->slices.num_running() > 0) return false;
  if (state->ring.front_is_complete()) return false;
  state->ring.Close();
  state->work.notify_all();
  return true;
}

std::optional<SliceTask> ParallelReader::TakeTask(State* state,
                                                  SliceQueue::Choice choice) {
  if (!state->jagged.is_full()) return state->slices.Take(choice);
  return state->slices.Take(choice,
                            SliceQueue::Pressure{&state->is_jagged, state->ring.front()});
}

// The first column of the earliest slice that nobody has taken yet. Waits while all
// are taken and the next slice has no room. Nothing when there is no more to do.
std::optional<SliceTask> ParallelReader::NextTask(State* state,
                                                  std::unique_lock<std::mutex>& lock,
                                                  bool is_spare) {
  while (!state->stopping) {
    if (is_spare && !state->failed && HasEnough(*state)) {
      state->work.wait(lock);
      continue;
    }
    if (auto task = TakeTask(state, SliceQueue::Choice::kUnshared)) return task;
    const bool may_open = !state->failed && CanOpen(*state);
    if (may_open) {
      if (OpenNextSlice(state)) state->work.notify_all();
      continue;
    }
    if (auto task = TakeTask(state, SliceQueue::Choice::kAny)) return task;
    if (state->failed && CloseIfFinal(state)) return std::nullopt;
    const bool is_last = state->failed || !state->walk.next();
    if (is_last && !state->slices.has_untaken()) return std::nullopt;
    state->work.wait(lock);
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
  // With one batch in flight its rest may be in the next slice.
  if (state.jagged.is_full() && state.ring.num_in_flight() > 1) return false;
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

InFlightBatch& ParallelReader::OpenBatch(State* state, int64_t num_rows) {
  BatchMemory memory = TakeMemory(state);
  std::vector<JaggedColumn> jagged;
  for (const int64_t field : state->layout.jagged_fields) {
    const FieldPlace& place = state->layout.fields[static_cast<size_t>(field)];
    // Fields are aligned to 64 bytes.
    jagged.push_back(
        {.offsets = reinterpret_cast<int64_t*>(memory.data + place.values_offset)});
  }
  return state->ring.Open(std::move(memory), num_rows, num_rows * state->spec.num_tasks(),
                          std::move(jagged));
}

// Opens the walk's next slice and the batches that it is the first to touch. Returns
// false, with the failure recorded, when there is no memory for them.
bool ParallelReader::OpenNextSlice(State* state) {
  OpenSlice open{.slice = *state->walk.next(), .number = state->num_slices};
  const BatchPlace first = state->batches.Locate(open.slice.share_row);
  open.first_batch = first.batch;
  try {
    int64_t batch = first.batch;
    int64_t row = first.row;
    for (int64_t left = open.slice.chunk.rows.num_rows; left > 0; ++batch, row = 0) {
      const int64_t batch_rows = state->batches.BatchRows(batch);
      if (batch == state->ring.num_opened()) {
        state->last_batch = &OpenBatch(state, batch_rows);
      }
      const int64_t count = std::min(left, batch_rows - row);
      open.spans.push_back({state->last_batch, row, count});
      left -= count;
    }
    state->slices.Push(std::move(open));
  } catch (...) {
    state->ring.Fail({open.first_batch, open.number, 0}, CurrentErrorAt({}));
    state->failed = true;
    if (state->slices.empty()) state->ring.Close();
    return false;
  }
  ++state->num_slices;
  state->walk.Advance();
  return true;
}

// Returns false where the task is to be gone on with later.
bool ParallelReader::RunTask(State* state, SliceTask* task, DecodeScratch* scratch) {
  try {
    return state->runner.Run(task, scratch);
  } catch (...) {
    task->reader.reset();
    const std::lock_guard lock(state->mutex);
    if (state->stopping) return true;
    state->failed = true;
    state->ring.Fail({task->slice->first_batch + task->num_spans_done,
                      task->slice->number, task->index},
                     CurrentErrorAt({}));
    return true;
  }
}

// Returns what is given up, to be destroyed without the lock. After a failure no slice
// is opened any more; when the last task of those that are open has ended, what failed
// first in the order is known.
SliceTask ParallelReader::FinishTask(State* state, SliceTask task) {
  SliceTask given_up = state->slices.Finish(std::move(task));
  if (state->failed) {
    if (state->slices.empty()) state->ring.Close();
    state->work.notify_all();
  }
  return given_up;
}

}  // namespace torchparquet
