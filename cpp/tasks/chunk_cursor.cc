#include "tasks/chunk_cursor.h"

#include "errors.h"

namespace torchparquet {
namespace {

// Counts the positions below `num_positions` that are congruent to `rank`.
int64_t CountClaims(int64_t num_positions, int64_t rank, int64_t world_size) {
  if (num_positions < 0) {
    throw Error(ErrorKind::kInvalidArgument,
                "num_positions must be at least 0: " + std::to_string(num_positions));
  }
  if (world_size < 1 || rank < 0 || rank >= world_size) {
    throw Error(ErrorKind::kInvalidArgument, "rank must be in [0, world_size): rank " +
                                                 std::to_string(rank) + ", world_size " +
                                                 std::to_string(world_size));
  }
  return num_positions > rank ? (num_positions - rank - 1) / world_size + 1 : 0;
}

}  // namespace

ChunkCursor::ChunkCursor(int64_t num_positions, int64_t rank, int64_t world_size)
    : num_claims_(CountClaims(num_positions, rank, world_size)),
      rank_(rank),
      world_size_(world_size) {}

std::optional<int64_t> ChunkCursor::Claim() {
  // The compare-exchange keeps the counter from running past the end however often
  // an exhausted cursor is asked. Relaxed: a claim publishes no other memory.
  int64_t claim = next_claim_.load(std::memory_order_relaxed);
  while (claim < num_claims_ && !next_claim_.compare_exchange_weak(
                                    claim, claim + 1, std::memory_order_relaxed)) {
  }
  if (claim >= num_claims_) return std::nullopt;
  return rank_ + claim * world_size_;
}

}  // namespace torchparquet
