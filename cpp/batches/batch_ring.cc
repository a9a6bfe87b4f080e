#include "batches/batch_ring.h"

#include <string>
#include <utility>

#include "base/errors.h"

namespace torchparquet {

void InFlightBatch::AddPart(int64_t jagged_index, int64_t element, JaggedPart part,
                            std::string_view path) {
  std::unique_lock lock(jagged_mutex);
  JaggedField& field = jagged[static_cast<size_t>(jagged_index)];
  JaggedColumn& column = field.columns[static_cast<size_t>(element)];
  column.path = path;
  column.num_rows += part.num_rows;
  field.num_bytes += static_cast<uint64_t>(part.items.num_bytes());
  field.max_bytes = part.items.values->max_bytes();
  if (field.is_too_large()) {
    // Complete fails, so that the failure is the same whichever part comes last.
    for (JaggedColumn& one : field.columns) one.parts.clear();
    return;
  }
  column.parts.push_back(std::move(part));
  if (field.is_keyed && !field.is_joining) JoinReady(std::move(lock), &field);
}

// Joins the next columns whose rows are all there, without the lock.
void InFlightBatch::JoinReady(std::unique_lock<std::mutex> lock, JaggedField* field) {
  const auto is_ready = [&] {
    return !field->is_too_large() && !field->failure &&
           field->num_joined < field->columns.size() &&
           field->columns[field->num_joined].num_rows == planned_rows;
  };
  field->is_joining = true;
  while (is_ready()) {
    JaggedColumn& column = field->columns[field->num_joined];
    JaggedColumn joined = {.offsets = column.offsets,
                           .parts = std::exchange(column.parts, {}),
                           .path = column.path};
    lock.unlock();
    try {
      JoinColumn(std::move(joined), planned_rows, field);
    } catch (const Error& error) {
      // Complete fails: this thread's task may be of another column.
      field->failure = error;
    }
    lock.lock();
    if (!field->failure) ++field->num_joined;
  }
  field->is_joining = false;
}

void InFlightBatch::Complete() {
  ErrorPlace place;
  try {
    for (JaggedField& field : jagged) {
      place.column = field.columns.front().path;
      if (!field.is_keyed) {
        items.push_back(JoinParts(std::move(field)));
        continue;
      }
      CheckSize(field);
      if (field.failure) throw *field.failure;
      // The rest, of a batch that was cut to fewer rows than were planned.
      for (; field.num_joined < field.columns.size(); ++field.num_joined) {
        JoinColumn(std::move(field.columns[field.num_joined]), num_rows, &field);
      }
      items.push_back(std::move(field.items));
    }
    for (const JaggedField& field : jagged) {
      if (field.weighs < 0) continue;
      place.column = {};
      CheckWeights(field, jagged[static_cast<size_t>(field.weighs)], num_rows);
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
                               std::vector<JaggedField> jagged) {
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
      // A batch that is whole may be complete, and read without the lock.
      if (num_cells > 0) last->num_rows = last_rows;
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
  if (stopped_) throw ReaderClosed();
  return {.status = TakeStatus::kEnded, .memory = {}};
}

}  // namespace torchparquet
