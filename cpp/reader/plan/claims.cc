#include "reader/plan/claims.h"

#include <iterator>

namespace torchparquet {

void Claims::Add(int64_t position) {
  const std::lock_guard lock(mutex_);
  positions_.push_back(position);
}

void Claims::End() {
  const std::lock_guard lock(mutex_);
  have_ended_ = true;
}

std::optional<int64_t> Claims::At(int64_t number) const {
  const std::lock_guard lock(mutex_);
  if (number >= std::ssize(positions_)) return std::nullopt;
  return positions_[static_cast<size_t>(number)];
}

int64_t Claims::size() const {
  const std::lock_guard lock(mutex_);
  return std::ssize(positions_);
}

bool Claims::have_ended() const {
  const std::lock_guard lock(mutex_);
  return have_ended_;
}

}  // namespace torchparquet
