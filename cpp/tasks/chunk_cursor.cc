#include "tasks/chunk_cursor.h"

#include <algorithm>
#include <string>

#include "errors.h"

namespace torchparquet {
namespace {

int64_t FirstPosition(int64_t num_positions, int64_t rank, int64_t world_size) {
  if (num_positions < 0) {
    throw Error(ErrorKind::kInvalidArgument,
                "num_positions must be at least 0: " + std::to_string(num_positions));
  }
  CheckRank(rank, world_size);
  return std::min(rank, num_positions);
}

}  // namespace

void CheckRank(int64_t rank, int64_t world_size) {
  if (world_size >= 1 && rank >= 0 && rank < world_size) return;
  throw Error(ErrorKind::kInvalidArgument, "rank must be in [0, world_size): rank " +
                                               std::to_string(rank) + ", world_size " +
                                               std::to_string(world_size));
}

ChunkCursor::ChunkCursor(int64_t num_positions, int64_t rank, int64_t world_size)
    : num_positions_(num_positions),
      world_size_(world_size),
      next_position_(FirstPosition(num_positions, rank, world_size)) {}

std::optional<int64_t> ChunkCursor::Claim() {
  // Relaxed: a claim publishes no other memory.
  int64_t position = next_position_.load(std::memory_order_relaxed);
  while (position < num_positions_) {
    // The positions between are those of other ranks. The sum could overflow.
    const bool is_last = num_positions_ - position <= world_size_;
    const int64_t next = is_last ? num_positions_ : position + world_size_;
    if (next_position_.compare_exchange_weak(position, next, std::memory_order_relaxed)) {
      return position;
    }
  }
  return std::nullopt;
}

}  // namespace torchparquet
