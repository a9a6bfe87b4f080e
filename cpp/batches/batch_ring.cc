#include "batches/batch_ring.h"

#include <string>
#include <utility>

#include "base/errors.h"

namespace torchparquet {

void InFlightBatch::AddPart(int64_t jagged_index, JaggedPart part,
                            std::string_view path) {
  const std::lock_guard lock(jagged_mutex);
  JaggedColumn& column = jagged[static_cast<size_t>(jagged_index)];
  column.path = path;
  column.num_bytes += static_cast<uint64_t>(part.items.num_bytes());
  column.max_bytes = part.items.values->max_bytes();
  if (!column.is_too_large()) return column.parts.push_back(std::move(part));
  // Complete fails, so that the failure is the same whichever part comes last.
  column.parts.clear();
}

void InFlightBatch::Complete() {
  ErrorPlace place;
  try {
    for (JaggedColumn& column : jagged) {
      place.column = column.path;
      items.push_back(JoinParts(std::move(column)));
    }
  } catch (...) {
    failure = CurrentErrorAt(place);
    items.clear();
    jagged.clear();
  }
  is_complete.store(true, std::memory_order_release);
}

BatchRing::BatchRing(int64_t num_batches, int64_t max_in_flight)
    : max_in_flight_(max_in_flight), num_batches_(num_batches) {}

bool BatchRing::HasRoom(int64_t num_batches) const {
  const std::lock_guard lock(mutex_);
  return static_cast<int64_t>(in_flight_.size()) + num_batches <= max_in_flight_;
}

InFlightBatch& BatchRing::Open(BatchMemory memory, int64_t num_rows, int64_t num_cells,
                               std::vector<JaggedColumn> jagged) {
  const std::lock_guard lock(mutex_);
  const int64_t number = num_taken_ + static_cast<int64_t>(in_flight_.size());
  InFlightBatch& opened =
      in_flight_.emplace_back(std::move(memory), num_rows, num_cells, std::move(jagged));
  opened.number = number;
  return opened;
}

InFlightBatch& BatchRing::At(int64_t batch) {
  const std::lock_guard lock(mutex_);
  return in_flight_.at(static_cast<size_t>(batch - num_taken_));
}

int64_t BatchRing::num_in_flight() const {
  const std::lock_guard lock(mutex_);
  return static_cast<int64_t>(in_flight_.size());
}

const InFlightBatch* BatchRing::front() const {
  const std::lock_guard lock(mutex_);
  return in_flight_.empty() ? nullptr : &in_flight_.front();
}

bool BatchRing::front_is_complete() const {
  const std::lock_guard lock(mutex_);
  return FrontIsComplete();
}

bool BatchRing::front_is_ready() const {
  const std::lock_guard lock(mutex_);
  return FrontIsComplete() && !in_flight_.front().failure;
}

int64_t BatchRing::num_taken() const {
  const std::lock_guard lock(mutex_);
  return num_taken_;
}

int64_t BatchRing::num_opened() const {
  const std::lock_guard lock(mutex_);
  return num_taken_ + static_cast<int64_t>(in_flight_.size());
}

void BatchRing::CountDown(InFlightBatch& batch, int64_t num_cells) {
  // Once complete, the batch may be taken and destroyed at any moment.
  const int64_t number = batch.number;
  // Release: the cells written before are visible to the thread that sees the count reach
  // zero. Acquire: the thread that brings it to zero passes on the writes of others.
  const int64_t before =
      batch.missing_cells.fetch_sub(num_cells, std::memory_order_acq_rel);
  if (before != num_cells) return;
  batch.Complete();
  num_complete_.fetch_add(1, std::memory_order_relaxed);
  bool is_front;
  {
    // Taking the lock orders the notification after the consumer's check of the count.
    const std::lock_guard lock(mutex_);
    is_front = number == num_taken_;
  }
  // A batch that is not at the front is found complete when a Take brings it there.
  if (is_front) changed_.notify_one();
}

void BatchRing::EndAfter(int64_t num_batches, int64_t last_rows, int64_t row_cells) {
  InFlightBatch* last = nullptr;
  int64_t num_cells = 0;
  {
    const std::lock_guard lock(mutex_);
    num_batches_ = num_batches;
    const int64_t place = num_batches - 1 - num_taken_;
    if (place >= 0 && place < std::ssize(in_flight_)) {
      last = &in_flight_[static_cast<size_t>(place)];
      num_cells = (last->num_rows - last_rows) * row_cells;
      last->num_rows = last_rows;
    }
  }
  changed_.notify_all();
  if (num_cells > 0) CountDown(*last, num_cells);
}

void BatchRing::Fail(const FailureKey& key, Error error) {
  const std::lock_guard lock(mutex_);
  if (failure_key_ && *failure_key_ <= key) return;
  failure_key_ = key;
  failure_ = std::move(error);
}

std::optional<FailureKey> BatchRing::failure_key() const {
  const std::lock_guard lock(mutex_);
  return failure_key_;
}

void BatchRing::Close() {
  {
    const std::lock_guard lock(mutex_);
    closed_ = true;
  }
  changed_.notify_all();
}

void BatchRing::Stop() {
  {
    const std::lock_guard lock(mutex_);
    stopped_ = true;
  }
  changed_.notify_all();
}

// Requires mutex_.
bool BatchRing::FrontIsComplete() const {
  return !in_flight_.empty() && num_taken_ < num_batches_ &&
         in_flight_.front().is_complete.load(std::memory_order_acquire);
}

// Requires mutex_, and a batch at the front.
BatchRing::TakeResult BatchRing::TakeFront() {
  InFlightBatch& front = in_flight_.front();
  TakeResult result{TakeStatus::kTaken, std::move(front.memory), front.num_rows,
                    std::move(front.items)};
  in_flight_.pop_front();
  ++num_taken_;
  num_complete_.fetch_sub(1, std::memory_order_relaxed);
  return result;
}

std::vector<BatchRing::TakeResult> BatchRing::TakeReady(int64_t num_rows,
                                                        int64_t max_batches) {
  std::vector<TakeResult> taken;
  const std::lock_guard lock(mutex_);
  while (std::ssize(taken) < max_batches && !stopped_ && FrontIsComplete() &&
         !in_flight_.front().failure && in_flight_.front().num_rows == num_rows) {
    taken.push_back(TakeFront());
  }
  return taken;
}

BatchRing::TakeResult BatchRing::Take(std::chrono::milliseconds timeout) {
  std::unique_lock lock(mutex_);
  const bool ready = changed_.wait_for(lock, timeout, [&] {
    return stopped_ || FrontIsComplete() || (closed_ && failure_) ||
           num_taken_ == num_batches_;
  });
  if (!ready) return {.status = TakeStatus::kTimedOut, .memory = {}};
  if (!stopped_ && FrontIsComplete()) {
    if (in_flight_.front().failure) throw *in_flight_.front().failure;
    return TakeFront();
  }
  if (closed_ && failure_) throw *failure_;
  if (stopped_) throw Error(ErrorKind::kStopped, "the reader was closed");
  return {.status = TakeStatus::kEnded, .memory = {}};
}

}  // namespace torchparquet
