#pragma once

#include <atomic>
#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include "kernels/permutation.h"
#include "kernels/scatter.h"
#include "layout.h"
#include "scratch.h"
#include "share.h"

namespace torchparquet {

// Where each row of a shuffle window goes to. Rows are counted over the window's chunks;
// strips are what tasks decode of a chunk before they scatter it.
//
// Threads make it together: each calls Make before it asks for moves. Everything else is
// constant.
class WindowPlaces {
 public:
  // So many rows that moves in the order of slots pass memory in order, and so few that
  // the strip stays in the cache.
  static constexpr int64_t kStripRows = int64_t{1} << 17;

  // `chunk_rows` has at least one row in all, and every entry one. `runs` are those
  // of the window's delivered rows in batches, which follow each other. `moves` is the
  // memory of an earlier window's, or fresh.
  WindowPlaces(const Window& window, std::span<const int64_t> chunk_rows,
               std::vector<BatchRun> runs, int row_bits, ScratchBuffer moves);

  // Returns when all moves are there. Thread-safe.
  void Make(DecodeScratch* scratch);
  // Hands each run of the strip's moves to `take`, ascending by slot over all of them.
  template <typename Take>
  void ForMoves(int64_t chunk, int64_t strip, Take take) const {
    const int64_t number = first_strip_[static_cast<size_t>(chunk)] + strip;
    for (int64_t range = 0; range < num_ranges_; ++range) take(MovesOf(range, number));
  }

  // Writes the slots of a chunk's rows, kNoSlot for those that are not delivered.
  void Slots(int64_t chunk, int64_t first_row, int64_t num_rows, uint32_t* out) const;

  // Writes the rows that stand in a run, in the order of their positions.
  void Rows(size_t run, uint32_t* out) const {
    permutation_.Rows(begin_ + run_begins_[run], runs_[run].num_rows, out);
  }
  // Where a row of the window is.
  struct ChunkRow {
    size_t chunk;
    size_t row;
  };
  ChunkRow ChunkOf(uint32_t row) const;

  // Ends the use.
  ScratchBuffer TakeMoves() { return std::move(moves_); }

  int row_bits() const { return row_bits_; }
  // The batch with that number in slots is that of `runs()[number]`.
  const std::vector<BatchRun>& runs() const { return runs_; }

 private:
  static constexpr int64_t kRangeRows = int64_t{1} << 16;
  static constexpr int kBlockBits = 10;

  int64_t num_strips() const { return std::ssize(strip_begins_) - 1; }
  std::span<const kernels::Move> MovesOf(int64_t range, int64_t strip) const;
  void MakeRange(int64_t range, uint8_t* room, std::vector<uint32_t>* next);
  uint32_t StripOf(uint32_t row) const;
  size_t RunAt(int64_t delivered_row) const;

  const int64_t begin_;  // positions that are delivered
  const int64_t end_;
  const kernels::Permutation permutation_;
  const int row_bits_;
  const std::vector<BatchRun> runs_;
  std::vector<int64_t> run_begins_;    // in delivered rows
  std::vector<int64_t> chunk_begins_;  // in rows
  std::vector<int64_t> first_strip_;   // of each chunk
  std::vector<int64_t> strip_begins_;  // in rows, and their end
  std::vector<uint32_t> block_strip_;  // that each block of rows begins in
  const int64_t num_ranges_;           // of positions, each made at once
  ScratchBuffer moves_;                // range by range, and there strip by strip
  std::vector<uint32_t> move_begins_;  // within a range; one more than strips for each
  std::atomic<int64_t> next_range_{0};
  std::atomic<int64_t> num_made_{0};
};

}  // namespace torchparquet
