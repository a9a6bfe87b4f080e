#include "reader/parallel_reader.h"

#include <unistd.h>

#include <algorithm>
#include <exception>
#include <utility>

#include "base/errors.h"
#include "reader/decode_thread.h"
#include "reader/read_order.h"
#include "reader/schedule/task_context.h"

namespace torchparquet {
namespace {

using Clock = std::chrono::steady_clock;

}  // namespace

ParallelReader::ParallelReader(ReaderSpec spec, ReaderMemory memory)
    : owner_pid_(getpid()),
      state_(std::make_unique<ReaderState>(std::move(spec), std::move(memory))),
      items_bytes_(static_cast<size_t>(state_->layout.num_jagged)) {}

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
  ReaderState& state = *state_;
  const std::lock_guard lock(state.lifecycle);
  if (state.started) return;
  state.started = true;
  state.spec.files->BeginReader();
  for (int64_t i = 0; i < state.spec.num_threads; ++i) {
    CountAlive(1);
    try {
      state.threads.emplace_back(&DecodeUntilDone, &state, state.scratch->TakeThread(),
                                 i > 0 && i + 1 == state.spec.num_threads);
    } catch (const std::exception& error) {
      CountAlive(-1);
      // Fewer threads than wanted still deliver every batch; none cannot.
      if (i > 0) return;
      state.started = false;
      state.spec.files->EndReader();
      throw NoThread(error);
    }
  }
}

void ParallelReader::CountAlive(int64_t num_threads) {
  const std::lock_guard lock(state_->mutex);
  state_->num_alive += num_threads;
}

bool ParallelReader::next_is_ready() const {
  CheckProcess();
  return state_->ring.front_is_ready();
}

BatchRing::TakeResult ParallelReader::Next(std::chrono::milliseconds timeout) {
  CheckProcess();
  BatchRing::TakeResult result = Take(timeout);
  if (result.status != BatchRing::TakeStatus::kTaken) return result;
  std::unique_lock lock(state_->mutex);
  Count(result);
  if (num_batches_ == 1) first_wait_ = state_->consumer_wait.Total({});
  WakeAfterTake(state_.get(), std::move(lock));
  return result;
}

std::vector<BatchRing::TakeResult> ParallelReader::NextReady(int64_t num_rows,
                                                             int64_t max_batches) {
  CheckProcess();
  auto taken = state_->ring.TakeReady(num_rows, max_batches);
  if (taken.empty()) return taken;
  std::unique_lock lock(state_->mutex);
  for (const BatchRing::TakeResult& result : taken) Count(result);
  WakeAfterTake(state_.get(), std::move(lock));
  return taken;
}

// Requires the state's mutex.
void ParallelReader::Count(const BatchRing::TakeResult& taken) {
  state_->jagged.Forget(taken.items);
  ++num_batches_;
  num_rows_ += taken.num_rows;
  latest_rows_ = taken.num_rows;
  for (size_t i = 0; i < taken.items.size(); ++i) {
    const JaggedItems& items = taken.items[i];
    const auto field = static_cast<size_t>(state_->layout.jagged_fields[i]);
    int64_t* num_bytes =
        &items_bytes_[static_cast<size_t>(state_->layout.fields[field].first_jagged)];
    if (!items.is_keyed) {
      *num_bytes += items.num_bytes();
      continue;
    }
    const int64_t value_bytes = static_cast<int64_t>(items.values->size()) /
                                std::max<int64_t>(1, items.num_items.front());
    // Sinks of starts hold only int64, so all are aligned.
    const auto* begin =
        reinterpret_cast<const int64_t*>(items.starts.front()->bytes().data());
    for (int64_t column = 0; column < state_->layout.fields[field].width; ++column) {
      num_bytes[column] += (begin[column + 1] - begin[column]) * value_bytes;
    }
  }
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
  if (CanOpen(*state_)) state_->idle.Wake();
}

void ParallelReader::Announce(const std::vector<Share>& shares) {
  CheckProcess();
  if (state_->prefetcher == nullptr) return;
  // Chunks or windows of each share, if there is room.
  constexpr int64_t kFirstSteps = 16;
  state_->prefetcher->Announce(FirstSteps(state_->spec, shares, kFirstSteps));
}

bool ParallelReader::wants_claim() const {
  CheckProcess();
  const ReaderState& state = *state_;
  const std::lock_guard lock(state_->mutex);
  const Claims* claims = state.spec.claims();
  if (claims == nullptr || claims->have_ended()) return false;
  const int64_t wanted = num_rows_ + std::max<int64_t>(state.spec.batch_rows, 1);
  return state.claimed_rows - state.latest_claim_rows < wanted;
}

int64_t ParallelReader::num_claims() const {
  CheckProcess();
  const Claims* claims = state_->spec.claims();
  return claims == nullptr ? 0 : claims->size();
}

void ParallelReader::Claim(int64_t number, int64_t position) {
  CheckProcess();
  ReaderState& state = *state_;
  Claims* claims = state.spec.claims();
  if (claims == nullptr) throw InvalidArgument("the share of the reader is not claimed");
  const Chunk chunk = state.spec.share.order->At(position);
  {
    const std::lock_guard lock(state.mutex);
    if (number != claims->size()) return;
    const int64_t skipped = std::min(chunk.rows.num_rows, state.unskipped_rows);
    state.unskipped_rows -= skipped;
    state.latest_claim_rows = chunk.rows.num_rows - skipped;
    state.claimed_rows += state.latest_claim_rows;
    state.batches.Append(state.latest_claim_rows);
    claims->Add(position);
    state.tasks->Refresh();
    state.idle.WakeAll();
  }
  if (state.prefetcher != nullptr) state.prefetcher->Advance();
}

void ParallelReader::EndClaims(bool drops_last) {
  CheckProcess();
  ReaderState& state = *state_;
  {
    const std::lock_guard lock(state.mutex);
    Claims* claims = state.spec.claims();
    if (claims == nullptr || claims->have_ended()) return;
    claims->End();
    const int64_t num_rows = state.claimed_rows;
    int64_t num_batches = 0;
    int64_t last_rows = 0;
    if (num_rows > 0) {
      const BatchPlace last = state.batches.Locate(num_rows - 1);
      num_batches = last.batch + 1;
      last_rows = last.row + 1;
      if (drops_last && last_rows < state.spec.batch_rows) {
        --num_batches;
        last_rows = state.spec.batch_rows;
      }
    }
    state.ring.EndAfter(num_batches, last_rows, state.spec.num_tasks());
    state.idle.WakeAll();
  }
  if (state.prefetcher != nullptr) state.prefetcher->Advance();
}

void ParallelReader::Stop() {
  if (getpid() != owner_pid_) return;
  AskToStop();
  Join();
}

bool ParallelReader::StopWithin(std::chrono::milliseconds timeout) {
  if (getpid() != owner_pid_) return true;
  AskToStop();
  {
    ReaderState& state = *state_;
    std::unique_lock lock(state.mutex);
    const auto have_ended = [&] { return state.num_alive == 0; };
    if (!state.ended.wait_for(lock, timeout, have_ended)) return false;
  }
  Join();
  return true;
}

void ParallelReader::AskToStop() {
  ReaderState& state = *state_;
  state.ring.Stop();
  {
    const std::lock_guard lock(state.mutex);
    state.stopping = true;
    state.thread_ends.Stop(Clock::now());
    state.idle.WakeAll();
  }
  if (state.prefetcher != nullptr) state.prefetcher->Stop();
}

void ParallelReader::Join() {
  ReaderState& state = *state_;
  const std::lock_guard lock(state.lifecycle);
  if (std::exchange(state.stopped, true)) return;
  state.started = true;  // a reader that was stopped starts no thread any more
  const bool had_threads = !state.threads.empty();
  for (std::thread& thread : state.threads) thread.join();
  state.threads.clear();
  KeptScratch kept;
  {
    const std::lock_guard state_lock(state.mutex);
    kept = state.tasks->Clear();
  }
  state.scratch->ReturnKept(std::move(kept));
  if (had_threads) state.spec.files->EndReader();
  // As much as the next reader finds fetched; more would lie idle between epochs.
  state.fetched->ShrinkIdle(state.fetched->max_bytes() / 4);
}

int64_t ParallelReader::num_taken() const {
  return getpid() == owner_pid_ ? state_->ring.num_taken() : 0;
}

ReaderStats ParallelReader::stats(int64_t num_unused) const {
  if (getpid() != owner_pid_) return {};
  const ReaderState& state = *state_;
  const std::lock_guard lock(state_->mutex);
  const auto now = Clock::now();
  const int64_t num_in_flight = state.ring.num_in_flight();
  const int64_t num_batches = num_batches_ - num_unused;
  const int64_t num_rows = num_rows_ - num_unused * latest_rows_;
  return {.batches = num_batches,
          .rows = num_rows,
          .delivered_bytes = DeliveredBytes(num_batches, num_rows),
          .columns = state.task_costs,
          .codecs = state.codec_costs,
          .consumer_wait = state.consumer_wait.Total(now),
          .first_wait = first_wait_,
          .room_waits = state.room_waits.Total(now),
          .idle_at_end = state.thread_ends.Idle(now),
          .lock_times = state.lock_times,
          .byte_waits = state.byte_waits.Total(now).all(),
          .fetched = state.Fetched(),
          .is_http = state.remote != nullptr && state.remote->fetcher()->is_http(),
          .bytes_from_cache = state.BytesFromCache(),
          .num_waits = state.num_waits,
          .num_complete = state.ring.num_complete(),
          .num_in_flight = num_in_flight,
          .held_bytes = num_in_flight * state.layout.slab_bytes +
                        state.jagged.num_bytes() + state.tasks->held_bytes()};
}

// The bytes of each task in the batches that were handed out.
std::vector<int64_t> ParallelReader::DeliveredBytes(int64_t num_batches,
                                                    int64_t num_rows) const {
  const TaskContext context = state_->context();
  std::vector<int64_t> num_bytes;
  for (int64_t task = 0; task < state_->spec.num_tasks(); ++task) {
    const FieldPlace& place = FieldOfTask(context, task);
    const int64_t valid_bytes = place.valid_offset >= 0 ? place.valid_items : 0;
    int64_t total = num_rows * (place.cell_items * place.item_bytes + valid_bytes);
    if (place.is_keyed) {
      total = num_rows * static_cast<int64_t>(sizeof(int32_t));  // of lengths
    } else if (place.num_offsets > 0) {
      total += num_batches * place.item_bytes;  // one offset more than rows
    }
    if (place.num_offsets > 0) {
      const int64_t element = ElementOfTask(state_->spec, task);
      total += items_bytes_[static_cast<size_t>(place.first_jagged + element)];
    }
    num_bytes.push_back(total);
  }
  return num_bytes;
}

}  // namespace torchparquet
