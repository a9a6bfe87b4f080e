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

// Where each row of a shuffle window goes to. Rows are counted over the window's chunks.
// Rows that are delivered go first to a place in a bucket, of 2^k of them by position,
// and from there to their batch; those that are not, to a place behind all buckets.
//
// Threads make it together: each calls Make before it asks for places or the order of a
// piece. Everything else is constant.
class WindowPlaces {
 public:
  // `chunk_rows` has at least one row in all, and every entry one. `runs` are those
  // of the window's delivered rows in batches, which follow each other. `memory` is that
  // of an earlier window, or fresh.
  WindowPlaces(const Window& window, std::span<const int64_t> chunk_rows,
               std::vector<BatchRun> runs, int row_bits, ScratchBuffer memory);

  // Returns when all places are there. Thread-safe.
  void Make(DecodeScratch* scratch);
  // Of a chunk's rows, in order.
  std::span<const uint32_t> Places(int64_t chunk, int64_t first_row,
                                   int64_t num_rows) const;
  int64_t num_places() const { return BeginOf(num_buckets_) + std::ssize(chunk_begins_); }

  // What a bucket has of a run.
  struct Piece {
    size_t run;
    int64_t first_row;  // within the batch
    int64_t num_rows;
    int64_t bucket_begin;  // the first place of the bucket
    int64_t next_begin;    // a place of the next bucket, in turn with the piece
    int64_t begin;         // in delivered rows
  };
  // Of all buckets, in order.
  const std::vector<Piece>& pieces() const { return pieces_; }
  // Which places of the bucket the piece's rows have, in the order of positions.
  std::span<const uint16_t> OrderOf(const Piece& piece) const;

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
  ScratchBuffer TakeMemory() { return std::move(memory_); }

  // What Make keeps of a row.
  static constexpr int64_t kRowBytes = sizeof(uint32_t) + sizeof(uint16_t);

  int row_bits() const { return row_bits_; }
  // The batch with that number in slots is that of `runs()[number]`.
  const std::vector<BatchRun>& runs() const { return runs_; }

 private:
  // Work on all ranges of rows that threads share.
  class Stage {
   public:
    // Returns when all are done.
    template <typename DoRange>
    void Run(int64_t num_ranges, DoRange do_range);

   private:
    std::atomic<int64_t> next_{0};
    std::atomic<int64_t> num_done_{0};
  };

  // Between buckets some places are left out: those which are written to side by side
  // would share few sets of the cache if powers of two lay between them.
  static constexpr int64_t kPadding = 80;

  int64_t BeginOf(int64_t bucket) const {
    return (bucket << bucket_bits_) + bucket * kPadding;
  }
  void CutPieces();
  void CountRange(int64_t range);
  void PlaceRange(int64_t range, uint32_t* next);
  std::span<uint32_t> PlacesOfRange(int64_t range) const;
  size_t RunAt(int64_t delivered_row) const;
  // As the constructor has reserved them.
  uint32_t* places() const { return reinterpret_cast<uint32_t*>(memory_.data()); }
  uint16_t* order() const { return reinterpret_cast<uint16_t*>(places() + num_rows_); }

  const int64_t begin_;  // the first position that is delivered
  const int64_t num_delivered_;
  const int64_t num_rows_;
  const kernels::Permutation permutation_;
  const int row_bits_;
  const int bucket_bits_;
  const int64_t num_buckets_;
  const int64_t range_rows_;
  const int64_t num_ranges_;
  const std::vector<BatchRun> runs_;
  std::vector<int64_t> run_begins_;    // in delivered rows
  std::vector<int64_t> chunk_begins_;  // in rows
  std::vector<Piece> pieces_;
  ScratchBuffer memory_;          // the place of each row, and the order of buckets
  std::vector<uint32_t> counts_;  // by range, of the rows that each bucket has of it
  Stage counting_;
  Stage placing_;
};

}  // namespace torchparquet
