#include "reader/decode_thread.h"

#if defined(__linux__)
#include <sched.h>
#endif

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <mutex>
#include <optional>
#include <string>
#include <system_error>
#include <utility>
#include <vector>

#include "base/errors.h"

namespace torchparquet {
namespace {

using Clock = std::chrono::steady_clock;

// True if so many complete batches wait that the consumer needs the core of the last
// thread more than further batches. On two cores, with a consumer that reads its batches,
// this is worth 9 % on uncompressed files and nothing on zstd.
bool HasEnough(const ReaderState& state) {
  constexpr int64_t kEnoughBatches = 16;
  const int64_t enough =
      std::clamp<int64_t>(state.memory.max_slabs / 4, 1, kEnoughBatches);
  // Batches after an incomplete front are of no use to the consumer. This thread may be
  // the only one left to run the task that the front waits for.
  return state.ring.num_complete() >= enough && state.ring.front_is_complete();
}

// True if the consumer has nothing to take, or took so many batches that there is work
// for threads that wait for room. Waking one takes longer than a narrow batch.
bool IsWorthWaking(const ReaderState& state) {
  return !state.ring.front_is_complete() ||
         state.ring.HasRoom(std::max<int64_t>(1, state.memory.max_slabs / 8));
}

// Counts a wait.
template <typename Wait>
void CountWait(ReaderState* state, RoomWaits* waits, const Wait& wait) {
  ++state->num_waits;
  waits->Begin(Clock::now());
  wait();
  waits->End(Clock::now());
}

// True if tasks are open that wait for bytes of stores, and not for room for their items.
bool AwaitsBytes(const ReaderState& state) {
  return state.prefetcher != nullptr && state.tasks->has_untaken() &&
         !state.jagged.is_full();
}

// True for a task after a failure, whose batches nobody can take and which cannot fail
// before it.
bool IsInVain(const ReaderState& state, const DecodeTask& task) {
  return state.failed && *state.ring.failure_key() < task.failure_key();
}

// The next slice or window to open. After a failure, only one with rows of batches before
// it.
std::optional<BatchRange> NextToOpen(const ReaderState& state) {
  const std::optional<BatchRange> next = state.tasks->next();
  if (!next || !state.failed) return next;
  return next->begin < state.ring.failure_key()->batch ? next : std::nullopt;
}

// True if nothing that runs or is still to run could fail before a recorded failure.
bool IsFinal(const ReaderState& state) {
  return state.failed && state.tasks->num_running() == 0 && !NextToOpen(state) &&
         !state.tasks->HasUntakenBefore(*state.ring.failure_key());
}

BatchMemory TakeMemory(ReaderState* state) {
  BatchMemory memory;
  if (state->spec.lent_slabs) {
    memory = std::move(state->lent.front());
    state->lent.pop_front();
  } else {
    memory.slab = state->slabs->Acquire();
    memory.data = memory.slab.data();
  }
  return memory;
}

void OpenBatch(ReaderState* state) {
  const int64_t number = state->ring.num_opened();
  int64_t num_rows = state->batches.BatchRows(number);
  const Claims* claims = state->spec.claims();
  if (claims != nullptr && claims->have_ended()) {
    const int64_t rest = state->claimed_rows - state->batches.BatchBegin(number);
    num_rows = std::min(num_rows, rest);
  }
  BatchMemory memory = TakeMemory(state);
  std::vector<JaggedField> jagged;
  for (const int64_t index : state->layout.jagged_fields) {
    const FieldPlace& place = state->layout.fields[static_cast<size_t>(index)];
    JaggedField& field = jagged.emplace_back();
    for (int64_t element = 0; element < place.width; ++element) {
      // Fields are aligned to 64 bytes, their columns to those of an offset.
      field.columns.push_back({.offsets = reinterpret_cast<int64_t*>(
                                   memory.data + place.OffsetOf(0, element))});
    }
    if (!place.is_keyed) continue;
    field.is_keyed = true;
    field.memory = &state->jagged;
    field.first_column = place.first_jagged;
    if (place.weighs < 0) continue;
    field.weighs = state->layout.fields[static_cast<size_t>(place.weighs)].jagged_index;
  }
  state->ring.Open(std::move(memory), num_rows, num_rows * state->spec.num_tasks(),
                   std::move(jagged));
}

// Opens the next chunk or window, and the batches that it is the first to touch. Returns
// false and records the failure if there is no memory for them.
bool OpenNext(ReaderState* state) {
  const BatchRange next = *state->tasks->next();
  try {
    while (state->ring.num_opened() < next.end) OpenBatch(state);
    state->tasks->OpenNext();
  } catch (...) {
    state->ring.Fail({next.begin, state->tasks->num_opened(), 0}, CurrentErrorAt({}));
    state->failed = true;
    return false;
  }
  return true;
}

// The failure of a task, with the row that it is about if it tells one: its number in its
// row group, and its row id. Documents that are packed to sequences have no ids.
Error NameRow(const ReaderSpec& spec, const DecodeTask& task, const Error& error) {
  const Chunk* chunk = task.chunk();
  const int64_t row = error.row();
  if (chunk == nullptr || row < 0) return error;
  std::string text = error.what();
  // Other errors name it before their place.
  if (error.kind() == ErrorKind::kCast) {
    text += ", row " + std::to_string(row) + " of its row group";
  }
  if (!spec.rows_are_packed) {
    // Ids of chunks of selections are the row group's.
    const int64_t first = chunk->selection < 0 ? chunk->rows.begin : 0;
    text += ", row.id " + std::to_string(chunk->first_row_id + row - first);
  }
  return Error(error.kind(), text).WithRow(row);
}

// Returns false if the task is to be resumed later.
bool RunTask(ReaderState* state, DecodeTask* task, DecodeScratch* scratch) {
  try {
    return task->Run(scratch);
  } catch (...) {
    const Error error = NameRow(state->spec, *task, CurrentErrorAt({}));
    const std::lock_guard lock(state->mutex);
    if (state->stopping) return true;
    state->failed = true;
    state->ring.Fail(task->failure_key(), error);
    return true;
  }
}

void FinishTask(ReaderState* state, DecodeTask* task) {
  const bool frees_others = task->Finish();
  // After a failure, all threads wait for the last task.
  if (state->failed) return state->idle.WakeAll();
  // The task may have given back memory that others wait for. This thread looks next.
  if (frees_others || state->is_pressed) state->idle.NoteChange();
}

// Returns the first open task that nobody has taken. Waits while all are taken and the
// next chunk or window has no room. Returns null if there is no more to do. Before it
// waits it lets `ended` go, which may hold memory.
//
//   stopped, or a failure is final                          -> null
//   spare, and the consumer has enough                      -> waits for the consumer
//   a task that shares no column with a running one         -> returns it
//   room for the next chunk or window                       -> opens it
//   a task that shares one: dearer than opening             -> returns it
//   no task is left, and no chunk will come                 -> null
//   there may be room for more bytes                        -> asks, without the lock
//   none of these                                           -> waits for a change
//
// After all but null and a task, it looks again from the top: other threads have had the
// lock meanwhile.
std::unique_ptr<DecodeTask> NextTask(ReaderState* state, TimedLock* lock,
                                     std::unique_ptr<DecodeTask>* ended, bool is_spare) {
  TaskStream& tasks = *state->tasks;
  while (!state->stopping) {
    if (IsFinal(*state)) {
      state->ring.Close();
      return nullptr;
    }
    const bool has_work = tasks.has_untaken() || tasks.next();
    if (is_spare && has_work && !state->failed && HasEnough(*state)) {
      ended->reset();
      CountWait(state, &state->room_waits, [&] { state->idle.WaitAsSpare(lock); });
      continue;
    }
    if (auto task = tasks.Take(TaskStream::Choice::kUnshared)) return task;
    if (CanOpen(*state)) {
      if (OpenNext(state)) state->idle.NoteChange();
      continue;
    }
    if (auto task = tasks.Take(TaskStream::Choice::kAny)) return task;
    const bool has_untaken = tasks.has_untaken();
    const bool may_grow = !state->failed && tasks.may_grow();
    if (!has_untaken && !NextToOpen(*state) && !may_grow) return nullptr;
    const bool for_bytes = AwaitsBytes(*state);
    // If a call is under way, its end wakes this thread, which then looks for room
    // itself.
    if (state->prefetcher != nullptr && !state->prefetcher->is_asking() &&
        state->prefetcher->may_advance()) {
      lock->Unlock();
      state->prefetcher->Advance();
      lock->Lock();
      continue;
    }
    if (has_untaken && !state->layout.jagged_fields.empty()) state->is_pressed = true;
    ended->reset();
    CountWait(state, for_bytes ? &state->byte_waits : &state->room_waits,
              [&] { state->idle.Wait(lock); });
  }
  return nullptr;
}

}  // namespace

bool CanOpen(const ReaderState& state) {
  const std::optional<BatchRange> next = NextToOpen(state);
  if (!next) return false;
  const int64_t new_batches = next->end - state.ring.num_opened();
  if (state.spec.lent_slabs && static_cast<int64_t>(state.lent.size()) < new_batches)
    return false;
  // The next chunk or window may hold the missing rows of the batch at the front.
  const bool is_for_front =
      state.ring.num_in_flight() <= 1 || next->begin <= state.ring.num_taken();
  if (state.jagged.is_full() && !is_for_front) return false;
  return state.ring.HasRoom(new_batches);
}

void WakeAfterTake(ReaderState* state, std::unique_lock<std::mutex> lock) {
  IdleThreads& idle = state->idle;
  const bool is_for_spare = idle.spare_waits() && !HasEnough(*state);
  const bool is_for_one =
      state->failed || state->is_pressed || (CanOpen(*state) && IsWorthWaking(*state));
  if (is_for_one) {
    state->is_pressed = false;
    idle.NoteChange();
  }
  const bool waits = is_for_one && idle.has_waiting();
  lock.unlock();
  if (is_for_spare) idle.WakeSpare();
  if (waits) idle.WakeNext();
}

namespace {

void Decode(ReaderState* state, std::unique_ptr<DecodeScratch> scratch, bool is_spare) {
  if (state->prefetcher != nullptr) state->prefetcher->Advance();
  TimedLock lock(&state->mutex, &state->lock_times);
  std::unique_ptr<DecodeTask> ended;
  while (std::unique_ptr<DecodeTask> task = NextTask(state, &lock, &ended, is_spare)) {
    const bool is_for_others =
        state->idle.has_waiting() && (state->tasks->has_untaken() || CanOpen(*state));
    const bool is_in_vain = IsInVain(*state, *task);
    lock.Unlock();
    if (is_for_others) state->idle.WakeNext();
    ended.reset();
    const int64_t index = task->index();
    scratch->costs = {};
    const auto begin = Clock::now();
    const bool is_paused = !is_in_vain && !RunTask(state, task.get(), scratch.get());
    const auto duration = Clock::now() - begin;
    lock.Lock();
    const int codec = scratch->costs.codec;
    state->task_costs[static_cast<size_t>(index)].Add(scratch->costs, duration);
    if (codec != TaskCosts::kNoCodec) {
      state->codec_costs[codec].Add(scratch->costs, duration);
    }
    if (is_paused) {
      task->Pause();
      state->is_pressed = true;
    } else {
      FinishTask(state, task.get());
    }
    ended = std::move(task);
    if (state->prefetcher != nullptr) {
      lock.Unlock();
      ended.reset();  // gives its blocks back
      if (state->prefetcher->may_advance()) state->prefetcher->Advance();
      lock.Lock();
    }
  }
  state->idle.WakeAll();
  // A failure may have left anything in it.
  if (!state->failed) state->scratch->ReturnThread(std::move(scratch));
}

// Ends the stream for a failure outside of any task, for want of memory. The task in hand
// may be lost, so no batch that is not complete will be.
void Abandon(ReaderState* state, Error error) {
  const std::lock_guard lock(state->mutex);
  state->failed = true;
  constexpr int64_t kBeforeAll = -1;
  state->ring.Fail({state->ring.num_taken(), kBeforeAll, kBeforeAll}, std::move(error));
  state->ring.Close();
  state->idle.WakeAll();
}

}  // namespace

void DecodeUntilDone(ReaderState* state, std::unique_ptr<DecodeScratch> scratch,
                     bool is_spare) {
  try {
    {
      const std::lock_guard lock(state->mutex);
      state->thread_ends.Begin();
    }
    Decode(state, std::move(scratch), is_spare);
  } catch (...) {
    Abandon(state, CurrentErrorAt({}));
  }
  const std::lock_guard lock(state->mutex);
  state->thread_ends.End(Clock::now());
  if (--state->num_alive == 0) state->ended.notify_all();
}

}  // namespace torchparquet
