#include "reader/plan/chunk_cursor.h"

#include <algorithm>
#include <string>
#include <utility>

#include "base/errors.h"

namespace torchparquet {
namespace {

int64_t FirstPosition(int64_t num_positions, int64_t rank, int64_t world_size) {
  if (num_positions < 0) {
    throw InvalidArgument("num_positions must be at least 0: ", num_positions);
  }
  CheckRank(rank, world_size);
  return std::min(rank, num_positions);
}

}  // namespace

void CheckRank(int64_t rank, int64_t world_size) {
  if (world_size >= 1 && rank >= 0 && rank < world_size) return;
  throw InvalidArgument("rank must be in [0, world_size): rank ", rank, ", world_size ",
                        world_size);
}

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

ChunkCursor::ChunkCursor(int64_t num_positions, int64_t rank, int64_t world_size)
    : num_positions_(num_positions),
      world_size_(world_size),
      next_(FirstPosition(num_positions, rank, world_size)) {}

ChunkCursor::ChunkCursor(std::shared_ptr<const Claims> claims)
    : claims_(std::move(claims)), next_(0) {}

std::optional<int64_t> ChunkCursor::Claim() {
  // Relaxed: a claim publishes no other memory.
  int64_t place = next_.load(std::memory_order_relaxed);
  while (claims_ != nullptr) {
    const auto position = claims_->At(place);
    if (!position) return std::nullopt;
    if (next_.compare_exchange_weak(place, place + 1, std::memory_order_relaxed)) {
      return position;
    }
  }
  while (place < num_positions_) {
    // The positions between are those of other ranks. The sum could overflow.
    const bool is_last = num_positions_ - place <= world_size_;
    const int64_t next = is_last ? num_positions_ : place + world_size_;
    if (next_.compare_exchange_weak(place, next, std::memory_order_relaxed)) return place;
  }
  return std::nullopt;
}

bool ChunkCursor::has_ended() const {
  const int64_t place = next_.load(std::memory_order_relaxed);
  if (claims_ == nullptr) return place >= num_positions_;
  // In this order: none is added after the end.
  return claims_->have_ended() && place >= claims_->size();
}

}  // namespace torchparquet
