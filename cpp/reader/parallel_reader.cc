#include "reader/parallel_reader.h"

#include <unistd.h>

#include <algorithm>
#include <exception>
#include <string>
#include <utility>

#include "errors.h"
#include "reader/read_order.h"
#include "reader/reader_plan.h"
#include "slices/slice_stream.h"
#include "windows/window_stream.h"

namespace torchparquet {
namespace {

using Clock = std::chrono::steady_clock;

std::shared_ptr<SinkPool> ChooseSinks(std::shared_ptr<SinkPool> offered,
                                      const ReaderSpec& spec) {
  const int64_t max_bytes = spec.max_memory_bytes;
  if (offered != nullptr && offered->max_sink_bytes() == max_bytes) return offered;
  return SinkPool::Make(max_bytes / 4, max_bytes);
}

std::shared_ptr<RemoteReads> MakeRemoteReads(const ReaderSpec& spec) {
  std::shared_ptr<Fetcher> fetcher = spec.files->fetcher();
  if (fetcher == nullptr) return nullptr;
  return std::make_shared<RemoteReads>(std::move(fetcher));
}

std::unique_ptr<TaskStream> MakeTasks(const TaskContext& context,
                                      const MemoryPlan& memory, KeptScratch kept) {
  const ReaderSpec& spec = *context.spec;
  const WorkSplit split = MakeWorkSplit(spec);
  if (spec.has_windows()) {
    return std::make_unique<WindowStream>(context, split, memory.max_columns,
                                          std::move(kept));
  }
  return std::make_unique<SliceStream>(
      context,
      SliceStream::Bounds{.cut = {.max_rows = memory.max_slice_rows,
                                  .batch_rows = spec.batch_rows / spec.num_lanes(),
                                  // A chunk that is one batch stays whole: of several
                                  // failures in a batch, that of the first column counts.
                                  .split = spec.batch_rows > 0 ? split : WorkSplit{}},
                          .max_held_bytes = MaxHeldBytes(spec, *context.layout, memory)},
      std::move(kept));
}

}  // namespace

std::shared_ptr<SlabPool> ParallelReader::ChooseSlabs(std::shared_ptr<SlabPool> offered,
                                                      const State& state) {
  if (state.spec.lent_slabs) return nullptr;
  const int64_t slab_bytes = state.layout.slab_bytes;
  if (offered != nullptr && offered->slab_bytes() == slab_bytes) return offered;
  // A loop holds its batch until it has the next one: given back at the end of each
  // epoch, their memory would be faulted in again in the next.
  constexpr int64_t kHeldByLoop = 2;
  const MemoryPlan& memory = state.memory;
  return SlabPool::Make(slab_bytes, memory.max_slabs * slab_bytes,
                        std::min(kHeldByLoop * slab_bytes, memory.max_held_bytes));
}

ParallelReader::State::State(ReaderSpec reader_spec, ReaderMemory offered)
    : spec(std::move(reader_spec)),
      batches(MakeBatchMap(spec)),
      layout(
          MakeBatchLayout(spec.fields, std::max<int64_t>(1, batches.max_batch_rows()))),
      memory(MakeMemoryPlan(spec, layout, batches)),
      slabs(ChooseSlabs(std::move(offered.slabs), *this)),
      scratch(offered.scratch != nullptr ? std::move(offered.scratch)
                                         : std::make_shared<ScratchPool>()),
      remote(MakeRemoteReads(spec)),
      files(std::make_shared<ReaderFiles>(spec.files, remote)),
      fetched_before(remote == nullptr ? FetchStats() : remote->fetcher().stats()),
      cached_before(CachedBytes()),
      jagged(RowBytes(spec), MaxItemsBytes(spec, layout, memory),
             ChooseSinks(std::move(offered.sinks), spec)),
      ring(batches.num_batches(), memory.max_slabs),
      prefetcher(MakePrefetcher()),
      tasks(MakeTasks(context(), memory, scratch->TakeKept())),
      costs(spec.num_tasks()) {}

TaskContext ParallelReader::State::context() {
  return {.spec = &spec,
          .batches = &batches,
          .layout = &layout,
          .files = files.get(),
          .jagged = &jagged,
          .ring = &ring,
          .stopping = &stopping,
          .prefetcher = prefetcher.get()};
}

FetchStats ParallelReader::State::Fetched() const {
  return remote == nullptr ? FetchStats() : remote->fetcher().stats() - fetched_before;
}

int64_t ParallelReader::State::CachedBytes() const {
  const auto cached = spec.files->cached();
  return cached == nullptr ? 0 : cached->cache().stats().bytes_read;
}

std::unique_ptr<Prefetcher> ParallelReader::State::MakePrefetcher() {
  if (remote == nullptr) return nullptr;
  return std::make_unique<Prefetcher>(
      Prefetcher::Parts{.files = files,
                        .reads = remote,
                        .cached = spec.files->cached(),
                        .columns = StoredPaths(spec),
                        .next_steps = ReadOrder(spec, batches),
                        .budget_bytes = spec.prefetch_bytes,
                        .on_ready = [this] {
                          const std::lock_guard lock(mutex);
                          work.notify_all();
                        }});
}

ParallelReader::ParallelReader(ReaderSpec spec, ReaderMemory memory)
    : owner_pid_(getpid()),
      state_(std::make_unique<State>(std::move(spec), std::move(memory))),
      items_bytes_(state_->layout.jagged_fields.size()) {}

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
                                 state.scratch->TakeThread(),
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

bool ParallelReader::next_is_ready() const {
  CheckProcess();
  return state_->ring.front_is_ready();
}

BatchRing::TakeResult ParallelReader::Next(std::chrono::milliseconds timeout) {
  CheckProcess();
  BatchRing::TakeResult result = Take(timeout);
  if (result.status != BatchRing::TakeStatus::kTaken) return result;
  State& state = *state_;
  // Under the lock, so that no thread decides to wait between the batch's leaving
  // and the notification.
  const std::lock_guard lock(state.mutex);
  state.jagged.Forget(result.items);
  if (LetsThreadGoOn(state)) {
    state.is_pressed = false;
    state.work.notify_all();
  }
  if (++num_batches_ == 1) first_wait_ = state_->consumer_wait.Total({});
  num_rows_ += result.num_rows;
  for (size_t i = 0; i < result.items.size(); ++i) {
    items_bytes_[i] += result.items[i].num_bytes();
  }
  return result;
}

// True if a waiting thread may have work now that a batch was taken. Waking threads that
// have none costs two context switches per batch.
bool ParallelReader::LetsThreadGoOn(const State& state) {
  return state.failed || state.is_pressed || CanOpen(state) ||
         (state.spare_waits && !HasEnough(state));
}

// Waits on the consumer's clock, also if an error ends the wait.
BatchRing::TakeResult ParallelReader::Take(std::chrono::milliseconds timeout) {
  struct Waiting {
    explicit Waiting(ConsumerWait* of) : wait(of) { wait->Begin(Clock::now()); }
    ~Waiting() { wait->End(Clock::now()); }
    Waiting(const Waiting&) = delete;
    Waiting& operator=(const Waiting&) = delete;
    ConsumerWait* wait;
  };
  const Waiting waiting(&state_->consumer_wait);
  Start();
  return state_->ring.Take(timeout);
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
    state.thread_ends.Stop(Clock::now());
  }
  state.work.notify_all();
  if (state.prefetcher != nullptr) state.prefetcher->Stop();
  const std::lock_guard lock(state.lifecycle);
  if (std::exchange(state.stopped, true)) return;
  state.started = true;  // a reader that was stopped starts no thread any more
  for (std::thread& thread : state.threads) thread.join();
  state.threads.clear();
  KeptScratch kept;
  {
    const std::lock_guard state_lock(state.mutex);
    kept = state.tasks->Clear();
  }
  state.scratch->ReturnKept(std::move(kept));
  state.spec.files->Close();
}

ReaderStats ParallelReader::stats() const {
  if (getpid() != owner_pid_) return {};
  const State& state = *state_;
  const std::lock_guard lock(state_->mutex);
  const auto now = Clock::now();
  const int64_t num_in_flight = state.ring.num_in_flight();
  return {.batches = num_batches_,
          .rows = num_rows_,
          .delivered_bytes = DeliveredBytes(),
          .columns = state.costs.columns(),
          .codecs = state.costs.codecs(),
          .consumer_wait = state.consumer_wait.Total(now),
          .first_wait = first_wait_,
          .room_waits = state.room_waits.Total(now),
          .idle_at_end = state.thread_ends.Idle(now),
          .byte_waits = state.byte_waits.Total(now).all(),
          .fetched = state.Fetched(),
          .is_http = state.remote != nullptr && state.remote->fetcher().is_http(),
          .bytes_from_cache = state.CachedBytes() - state.cached_before,
          .num_waits = state.num_waits,
          .num_complete = state.ring.num_complete(),
          .num_in_flight = num_in_flight,
          .held_bytes = num_in_flight * state.layout.slab_bytes +
                        state.jagged.num_bytes() + state.tasks->held_bytes()};
}

// The bytes of each task in the batches that were handed out.
std::vector<int64_t> ParallelReader::DeliveredBytes() const {
  const TaskContext context = state_->context();
  std::vector<int64_t> num_bytes;
  for (int64_t task = 0; task < state_->spec.num_tasks(); ++task) {
    const FieldPlace& place = FieldOfTask(context, task);
    const int64_t valid_bytes = place.valid_offset >= 0 ? place.valid_items : 0;
    int64_t total = num_rows_ * (place.cell_items * place.item_bytes + valid_bytes);
    if (place.num_offsets > 0) {
      // One more than rows, and what they lead to.
      total += num_batches_ * place.item_bytes;
      total += items_bytes_[static_cast<size_t>(place.jagged_index)];
    }
    num_bytes.push_back(total);
  }
  return num_bytes;
}

void ParallelReader::Work(State* state, std::unique_ptr<DecodeScratch> scratch,
                          bool is_spare) {
  if (state->prefetcher != nullptr) state->prefetcher->Advance();
  const auto num_columns = std::ssize(state->spec.columns);
  std::unique_lock lock(state->mutex);
  state->thread_ends.Begin();
  while (std::unique_ptr<DecodeTask> task = NextTask(state, lock, is_spare)) {
    lock.unlock();
    const ReadStep step = StepOf(task->chunk());
    const int64_t index = task->index();
    scratch->costs = {};
    const auto begin = Clock::now();
    const bool is_paused = !RunTask(state, task.get(), scratch.get());
    const auto duration = Clock::now() - begin;
    lock.lock();
    state->costs.Add(index, scratch->costs, duration);
    if (is_paused) {
      task->Pause();
      state->is_pressed = true;
    } else {
      FinishTask(state, task.get());
    }
    lock.unlock();
    task.reset();
    if (state->prefetcher != nullptr && !is_paused && index < num_columns) {
      state->prefetcher->Done(step, index);
    }
    lock.lock();
  }
  state->thread_ends.End(Clock::now());
  // A failure may have left anything in it.
  if (!state->failed) state->scratch->ReturnThread(std::move(scratch));
}

void ParallelReader::WaitForWork(State* state, RoomWaits* waits,
                                 std::unique_lock<std::mutex>& lock) {
  ++state->num_waits;
  waits->Begin(Clock::now());
  state->work.wait(lock);
  waits->End(Clock::now());
}

// True if so many complete batches wait that the consumer needs the core of the last
// thread more than further batches. On two cores, with a consumer that reads its batches,
// this is worth 9 % on uncompressed files and nothing on zstd.
bool ParallelReader::HasEnough(const State& state) {
  constexpr int64_t kEnoughBatches = 16;
  const int64_t enough =
      std::clamp<int64_t>(state.memory.max_slabs / 4, 1, kEnoughBatches);
  // Batches after an incomplete front are of no use to the consumer. This thread may be
  // the only one left to run the task that the front waits for.
  return state.ring.num_complete() >= enough && state.ring.front_is_complete();
}

// True if tasks are open that wait for bytes of stores, and not for room for their items.
// One of them may fail before another that has failed already.
bool ParallelReader::AwaitsBytes(const State& state) {
  return state.prefetcher != nullptr && state.tasks->has_untaken() &&
         !state.jagged.is_full();
}

// After a failure, with no task running and no batch to be taken: tasks that still wait
// for memory would decode batches after the failed one, which nobody can take.
bool ParallelReader::CloseIfFinal(State* state) {
  if (state->tasks->num_running() > 0) return false;
  if (state->ring.front_is_complete()) return false;
  state->ring.Close();
  state->work.notify_all();
  return true;
}

// Returns the first open task that nobody has taken. Waits while all are taken and the
// next chunk or window has no room. Returns null if there is no more to do.
std::unique_ptr<DecodeTask> ParallelReader::NextTask(State* state,
                                                     std::unique_lock<std::mutex>& lock,
                                                     bool is_spare) {
  TaskStream& tasks = *state->tasks;
  while (!state->stopping) {
    const bool has_work = tasks.has_untaken() || tasks.next();
    if (is_spare && has_work && !state->failed && HasEnough(*state)) {
      state->spare_waits = true;
      WaitForWork(state, &state->room_waits, lock);
      state->spare_waits = false;
      continue;
    }
    if (auto task = tasks.Take(TaskStream::Choice::kUnshared)) return task;
    const bool may_open = !state->failed && CanOpen(*state);
    if (may_open) {
      if (OpenNext(state)) state->work.notify_all();
      continue;
    }
    if (auto task = tasks.Take(TaskStream::Choice::kAny)) return task;
    if (state->failed && !AwaitsBytes(*state) && CloseIfFinal(state)) return nullptr;
    const bool is_last = state->failed || !tasks.next();
    const bool has_untaken = tasks.has_untaken();
    if (is_last && !has_untaken) return nullptr;
    if (has_untaken && !state->layout.jagged_fields.empty()) state->is_pressed = true;
    const bool for_bytes = AwaitsBytes(*state);
    WaitForWork(state, for_bytes ? &state->byte_waits : &state->room_waits, lock);
    if (for_bytes) {
      // Room for further bytes may be why this thread was woken.
      lock.unlock();
      state->prefetcher->Advance();
      lock.lock();
    }
  }
  return nullptr;
}

bool ParallelReader::CanOpen(const State& state) {
  const std::optional<BatchRange> next = state.tasks->next();
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

BatchMemory ParallelReader::TakeMemory(State* state) {
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

void ParallelReader::OpenBatch(State* state) {
  const int64_t num_rows = state->batches.BatchRows(state->ring.num_opened());
  BatchMemory memory = TakeMemory(state);
  std::vector<JaggedColumn> jagged;
  for (const int64_t field : state->layout.jagged_fields) {
    const FieldPlace& place = state->layout.fields[static_cast<size_t>(field)];
    // Fields are aligned to 64 bytes.
    jagged.push_back(
        {.offsets = reinterpret_cast<int64_t*>(memory.data + place.values_offset)});
  }
  state->ring.Open(std::move(memory), num_rows, num_rows * state->spec.num_tasks(),
                   std::move(jagged));
}

// Opens the next chunk or window, and the batches that it is the first to touch. Returns
// false and records the failure if there is no memory for them.
bool ParallelReader::OpenNext(State* state) {
  const BatchRange next = *state->tasks->next();
  try {
    while (state->ring.num_opened() < next.end) OpenBatch(state);
    state->tasks->OpenNext();
  } catch (...) {
    state->ring.Fail({next.begin, state->tasks->num_opened(), 0}, CurrentErrorAt({}));
    state->failed = true;
    if (state->tasks->empty()) state->ring.Close();
    return false;
  }
  return true;
}

// Returns false if the task is to be resumed later.
bool ParallelReader::RunTask(State* state, DecodeTask* task, DecodeScratch* scratch) {
  try {
    return task->Run(scratch);
  } catch (...) {
    const std::lock_guard lock(state->mutex);
    if (state->stopping) return true;
    state->failed = true;
    state->ring.Fail(task->failure_key(), CurrentErrorAt({}));
    return true;
  }
}

// After a failure nothing is opened any more. Once the last open task has ended, the
// first failure in the order is known.
void ParallelReader::FinishTask(State* state, DecodeTask* task) {
  if (task->Finish()) state->work.notify_all();
  if (!state->failed) return;
  if (state->tasks->empty()) state->ring.Close();
  state->work.notify_all();
}

}  // namespace torchparquet
