#pragma once

#include <atomic>
#include <cstdint>
#include <optional>

namespace torchparquet {

// Hands out the positions of one rank: from 0 .. num_positions - 1 exactly those
// with `position % world_size == rank`, ascending, each once, to any number of
// threads. Lock-free; thread-safe.
class ChunkCursor {
 public:
  // Throws Error(kInvalidArgument) unless 0 <= rank < world_size and num_positions >= 0.
  ChunkCursor(int64_t num_positions, int64_t rank, int64_t world_size);

  // Returns the next position of this rank, or nothing when all are claimed.
  std::optional<int64_t> Claim();

 private:
  const int64_t num_claims_;
  const int64_t rank_;
  const int64_t world_size_;
  std::atomic<int64_t> next_claim_{0};
};

}  // namespace torchparquet
