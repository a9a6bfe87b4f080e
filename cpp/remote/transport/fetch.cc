#include "remote/transport/fetch.h"

#include <cstddef>
#include <new>
#include <string>
#include <utility>

namespace torchparquet {

Fetch::Fetch(std::shared_ptr<const RemoteObject> object, const ByteRange& range,
             std::shared_ptr<BufferPool> pool)
    : object_(std::move(object)), range_(range), pool_(std::move(pool)) {}

Fetch::~Fetch() {
  if (pool_ != nullptr && memory_.data() != nullptr) pool_->Return(std::move(memory_));
}

void Fetch::Prepare() {
  if (memory_.data() != nullptr) return;
  const int64_t num_bytes = range_.num_bytes + kPaddingBytes;
  try {
    memory_ = pool_ != nullptr ? pool_->Take(num_bytes)
                               : PageBuffer(static_cast<size_t>(num_bytes));
  } catch (const std::bad_alloc&) {
    throw Error(ErrorKind::kOutOfMemory,
                Text("the system has no memory left for bytes of a store: ", num_bytes,
                     " bytes wanted"),
                {.path = object_->path});
  }
}

int64_t Fetch::num_arrived() const {
  const std::lock_guard lock(mutex_);
  return num_arrived_;
}

bool Fetch::is_over() const {
  const std::lock_guard lock(mutex_);
  return error_.has_value() || num_arrived_ == range_.num_bytes;
}

void Fetch::Await(int64_t num_bytes) const {
  std::unique_lock lock(mutex_);
  arrived_.wait(lock, [&] { return num_arrived_ >= num_bytes || error_.has_value(); });
  if (num_arrived_ < num_bytes) throw error_->Unshared();
}

void Fetch::Arrive(int64_t num_arrived) {
  {
    const std::lock_guard lock(mutex_);
    if (error_.has_value()) return;
    num_arrived_ = num_arrived;
    arrived_.notify_all();
  }
  if (num_arrived == range_.num_bytes) End();
}

void Fetch::Fail(const Error& error) {
  {
    const std::lock_guard lock(mutex_);
    if (error_.has_value() || num_arrived_ == range_.num_bytes) return;
    error_ = error.Unshared();
    arrived_.notify_all();
  }
  End();
}

void Fetch::OnOver(std::function<void()> over) {
  {
    const std::lock_guard lock(mutex_);
    if (!error_.has_value() && num_arrived_ < range_.num_bytes) {
      over_ = std::move(over);
      return;
    }
  }
  over();
}

void Fetch::End() {
  std::function<void()> over;
  {
    const std::lock_guard lock(mutex_);
    over = std::exchange(over_, nullptr);
  }
  if (over) over();
}

}  // namespace torchparquet
