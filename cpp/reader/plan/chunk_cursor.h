#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <vector>

namespace torchparquet {

// Throws Error(kInvalidArgument) unless 0 <= rank < world_size.
void CheckRank(int64_t rank, int64_t world_size);

// Positions that one rank took from a counter of all ranks, in the order in which it took
// them. The consumer adds them while cursors walk. Thread-safe.
class Claims {
 public:
  void Add(int64_t position);
  // No more come.
  void End();

  int64_t size() const;
  bool have_ended() const;
  // The position that was added as number `number`, counted from 0, where there is one.
  std::optional<int64_t> At(int64_t number) const;

 private:
  mutable std::mutex mutex_;
  std::vector<int64_t> positions_;  // guarded by mutex_, as below
  bool have_ended_ = false;
};

// Walks the positions of the order of an epoch, and hands out those of one rank: each
// once, to any number of threads, ascending or in the order of claims. Lock-free but for
// claims; thread-safe.
class ChunkCursor {
 public:
  // Of the positions 0 .. num_positions - 1, hands out those where `position % world_size
  // == rank`, and skips the others. Throws Error(kInvalidArgument) unless 0 <= rank <
  // world_size and num_positions >= 0.
  ChunkCursor(int64_t num_positions, int64_t rank, int64_t world_size);
  // Hands out the positions that the rank has claimed.
  explicit ChunkCursor(std::shared_ptr<const Claims> claims);

  // Returns the next position of this rank. Returns nothing when all are handed out, of
  // claims also until more are added.
  std::optional<int64_t> Claim();
  // True if Claim returns nothing from now on.
  bool has_ended() const;

 private:
  const std::shared_ptr<const Claims> claims_;  // null: by remainder
  const int64_t num_positions_ = 0;
  const int64_t world_size_ = 1;
  // By remainder a position, `num_positions_` at the end; else the number of a claim.
  std::atomic<int64_t> next_;
};

}  // namespace torchparquet
