#pragma once

#include <atomic>
#include <cstdint>
#include <optional>

namespace torchparquet {

// Throws Error(kInvalidArgument) unless 0 <= rank < world_size.
void CheckRank(int64_t rank, int64_t world_size);

// Walks the positions 0 .. num_positions - 1 of the plan's chunks. It hands out those of
// one rank, where `position % world_size == rank`, and skips the others: ascending, each
// once, to any number of threads. Lock-free; thread-safe.
class ChunkCursor {
 public:
  // Throws Error(kInvalidArgument) unless 0 <= rank < world_size and num_positions >= 0.
  ChunkCursor(int64_t num_positions, int64_t rank, int64_t world_size);

  // Returns the next position of this rank, or nothing when all are claimed.
  std::optional<int64_t> Claim();

 private:
  const int64_t num_positions_;
  const int64_t world_size_;
  std::atomic<int64_t> next_position_;  // num_positions_: all are claimed
};

}  // namespace torchparquet
