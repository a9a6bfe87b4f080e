#pragma once

#include <cstdint>
#include <mutex>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "batches/layout.h"
#include "kernels/shuffle/partition.h"
#include "kernels/shuffle/permutation.h"
#include "kernels/shuffle/scatter.h"
#include "scratch.h"
#include "tasks/share.h"

namespace torchparquet {

// Bits of a row in the slots of shuffle windows.
int RowBits(const BatchLayout& layout);

// Where each row of a shuffle window goes to. Rows are counted over the window's chunks.
// Each goes first to a place in its bucket of the permutation, and from there, if it is
// delivered, to its batch.
//
// Each thread calls Make before it asks for more than numbers. Everything else is
// constant.
class WindowPlaces {
 public:
  // `chunk_rows` has at least one row in all, and every entry one. `runs` are those
  // of the window's delivered rows in batches, which follow each other. `memory` is that
  // of an earlier window, or fresh.
  WindowPlaces(const Window& window, std::span<const int64_t> chunk_rows,
               std::vector<BatchRun> runs, int row_bits, ScratchBuffer memory);

  // Returns when all that rows are permuted by is there. Thread-safe.
  void Make() {
    std::call_once(made_, [this] { MakeOnce(); });
  }

  int64_t num_places() const { return shape_.num_buckets() * stride_; }
  // Where the strip ends that holds a chunk's row, counted in the chunk's rows; that may
  // be behind the chunk.
  int64_t StripEnd(int64_t chunk, int64_t row) const;
  int64_t strip_rows() const { return shape_.strip_rows(); }
  // How a chunk's rows go to their places where they are a whole strip, else nothing.
  std::optional<kernels::StripOrder> StripAt(int64_t chunk, int64_t first_row,
                                             int64_t num_rows) const;
  // Writes the places of a chunk's rows.
  void Places(int64_t chunk, int64_t first_row, int64_t num_rows, uint32_t* out) const;

  // What a bucket has of a run, or a part of it.
  struct Piece {
    size_t run;
    int64_t first_row;                // within the batch
    std::span<const uint16_t> order;  // places in the bucket, by position
    int64_t bucket_begin;             // the first place of the bucket
    int64_t next_begin;  // a place of the next bucket, in turn with the piece
  };
  // Of all buckets, in order.
  const std::vector<Piece>& pieces() const { return pieces_; }

  // Writes the slots of a chunk's rows, kNoSlot for those that are not delivered.
  void Slots(int64_t chunk, int64_t first_row, int64_t num_rows, uint32_t* out) const;

  // Writes the rows that stand in a run, in the order of their positions.
  void Rows(size_t run, uint32_t* out) const {
    permutation_->Rows(begin_ + run_begins_[run], runs_[run].num_rows, out);
  }
  // Where a row of the window is.
  struct ChunkRow {
    size_t chunk;
    size_t row;
  };
  ChunkRow ChunkOf(uint32_t row) const;

  // Ends the use.
  ScratchBuffer TakeMemory() { return std::move(memory_); }

  // The most that is kept of a row, in windows of some strips: its part of the tables of
  // strips and of buckets and of places of runs, each beside its inverse. Large windows
  // keep less than a byte.
  static constexpr int64_t kRowBytes = 6;
  int64_t num_bytes() const {
    return shape_.num_table_entries() * static_cast<int64_t>(sizeof(uint16_t));
  }

  int row_bits() const { return row_bits_; }
  // The batch with that number in slots is that of `runs()[number]`.
  const std::vector<BatchRun>& runs() const { return runs_; }

 private:
  void MakeOnce();
  int64_t RowOf(int64_t chunk, int64_t row) const {
    return chunk_begins_[static_cast<size_t>(chunk)] + row;
  }
  void CutPieces();
  size_t RunAt(int64_t delivered_row) const;

  const int64_t begin_;  // the first position that is delivered
  const int64_t num_delivered_;
  const uint64_t key_;
  const kernels::PermutationShape shape_;
  const int row_bits_;
  const int64_t stride_;  // from bucket to bucket
  const std::vector<BatchRun> runs_;
  std::vector<int64_t> run_begins_;    // in delivered rows
  std::vector<int64_t> chunk_begins_;  // in rows
  std::vector<Piece> pieces_;
  ScratchBuffer memory_;  // the permutation's tables
  std::once_flag made_;
  std::optional<kernels::Permutation> permutation_;
};

}  // namespace torchparquet
