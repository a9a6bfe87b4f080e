#include "kernels/byte_sink.h"

#include <algorithm>
#include <new>
#include <string>
#include <utility>

#include "base/errors.h"

namespace torchparquet::kernels {
namespace {

constexpr size_t kLeastCapacity = 512;

}  // namespace

ByteSink::ByteSink(ByteSink&& other) noexcept { *this = std::move(other); }

ByteSink& ByteSink::operator=(ByteSink&& other) noexcept {
  data_ = std::move(other.data_);
  size_ = std::exchange(other.size_, 0);
  capacity_ = std::exchange(other.capacity_, 0);
  max_bytes_ = other.max_bytes_;
  return *this;
}

uint8_t* ByteSink::Extend(size_t num_bytes) {
  if (num_bytes > max_bytes_ - std::min(size_, max_bytes_)) {
    throw Error(
        ErrorKind::kValuesTooLarge,
        Text("values need more than max_memory leaves them; take a larger one or a "
             "smaller batch_size: they need ",
             size_ + num_bytes, " bytes or more, and have ", max_bytes_));
  }
  const size_t free = capacity_ - size_;
  if (free < kSlackBytes || num_bytes > free - kSlackBytes) Grow(num_bytes);
  uint8_t* room = data_.get() + size_;
  size_ += num_bytes;
  return room;
}

void ByteSink::Grow(size_t num_bytes) {
  constexpr size_t kMost = std::numeric_limits<size_t>::max() / 4;
  if (num_bytes > kMost) throw std::bad_alloc();
  const size_t least = size_ + num_bytes + kSlackBytes;
  size_t capacity = std::max({least, 2 * capacity_, kLeastCapacity});
  // Doubling stops at the limit, which is enough as checked above.
  if (max_bytes_ < kMost) capacity = std::min(capacity, max_bytes_ + kSlackBytes);
  capacity = std::max(capacity, least);
  // Large blocks move without a copy: the system maps their pages elsewhere.
  auto* data = static_cast<uint8_t*>(std::realloc(data_.get(), capacity));
  if (data == nullptr) throw std::bad_alloc();
  static_cast<void>(data_.release());
  data_.reset(data);
  capacity_ = capacity;
}

}  // namespace torchparquet::kernels
