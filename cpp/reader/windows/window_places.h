#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "base/once.h"
#include "base/scratch_buffer.h"
#include "batches/layout.h"
#include "kernels/shuffle/partition.h"
#include "kernels/shuffle/permutation.h"
#include "reader/plan/share.h"

namespace torchparquet {

// The bits of a row in slots of shuffle windows.
int RowBits(const BatchLayout& layout);

// The places of a shuffle window's rows. Rows are counted over the window's chunks. Each
// row goes first to a place in its bucket of the permutation and from there, if it is
// delivered, to its batch. In a window with an order, the place of a row is its number,
// and batches take rows from there: only numbers, orders and rows may be asked for.
//
// Each thread calls Make before it reads anything but numbers. Everything else is
// constant. Threads that come to it together make its tables together:
//
//   the first one lays tables out --> each takes the next part --> no part is left:
//                                        ^------- made --|           waits for the last
class WindowPlaces {
 public:
  // `chunk_rows` has at least one entry, and every entry at least one row. `runs` are the
  // runs of the delivered rows in consecutive batches. `memory` comes from an earlier
  // window, or is fresh.
  WindowPlaces(const Window& window, std::span<const int64_t> chunk_rows,
               std::vector<BatchRun> runs, int row_bits, ScratchBuffer memory);

  // Returns when the tables of the permutation are made, some of them by this thread.
  // Thread-safe. Throws std::bad_alloc before any is made; the next call tries again.
  void Make();

  bool has_order() const { return order_ != nullptr; }
  // The rows of a run of a window with an order, by position.
  std::span<const uint32_t> OrderOf(size_t run) const {
    const auto first = static_cast<size_t>(begin_ + run_begins_[run]);
    return std::span(*order_).subspan(first, static_cast<size_t>(runs_[run].num_rows));
  }

  int64_t num_places() const {
    return has_order() ? shape_.num_rows() : shape_.num_buckets() * stride_;
  }
  // The number of a chunk's row in the window.
  int64_t RowOf(int64_t chunk, int64_t row) const {
    return chunk_begins_[static_cast<size_t>(chunk)] + row;
  }
  // The end of the strip that holds a chunk's row, counted in the rows of the chunk. It
  // may lie after the chunk.
  int64_t StripEnd(int64_t chunk, int64_t row) const;
  int64_t strip_rows() const { return shape_.strip_rows(); }
  // The places of a chunk's rows if they are a whole strip, else nothing.
  std::optional<kernels::StripOrder> StripAt(int64_t chunk, int64_t first_row,
                                             int64_t num_rows) const;
  // Writes the places of a chunk's rows.
  void Places(int64_t chunk, int64_t first_row, int64_t num_rows, uint32_t* out) const;

  // A bucket's rows of one run, or some of them.
  struct Piece {
    size_t run;
    int64_t first_row;                // within the batch
    std::span<const uint16_t> order;  // by position, places in the bucket
    int64_t bucket_begin;             // the first place of the bucket
    int64_t next_begin;               // in the next bucket, at the same distance
  };
  // The pieces of all buckets, in order.
  const std::vector<Piece>& pieces() const { return pieces_; }

  // Writes the slots of a chunk's rows: kNoSlot for rows that are not delivered.
  void Slots(int64_t chunk, int64_t first_row, int64_t num_rows, uint32_t* out) const;

  // Writes the rows of a run, in the order of their positions.
  void Rows(size_t run, uint32_t* out) const;
  // The chunk of a row of the window, and the row within it.
  struct ChunkRow {
    size_t chunk;
    size_t row;
  };
  ChunkRow ChunkOf(uint32_t row) const;

  // Takes the memory. The places must not be used after that.
  ScratchBuffer TakeMemory() { return std::move(memory_); }

  // The most bytes kept per row, in windows of a few strips: a row's part of the tables
  // of strips and buckets and of the places of runs, each with its inverse. Large windows
  // keep less than one byte.
  static constexpr int64_t kRowBytes = 6;
  int64_t num_bytes() const {
    if (has_order()) return 0;
    return shape_.num_table_entries() * static_cast<int64_t>(sizeof(uint16_t));
  }

  int row_bits() const { return row_bits_; }
  // The batch with number n in slots is the batch of `runs()[n]`.
  const std::vector<BatchRun>& runs() const { return runs_; }

 private:
  void LayOut();
  void CutPieces();
  size_t RunAt(int64_t delivered_row) const;

  const int64_t begin_;  // the first position that is delivered
  const int64_t num_delivered_;
  const uint64_t key_;
  const std::shared_ptr<const std::vector<uint32_t>> order_;  // null: by key
  const kernels::PermutationShape shape_;
  const int row_bits_;
  const int64_t stride_;  // from bucket to bucket
  const std::vector<BatchRun> runs_;
  std::vector<int64_t> run_begins_;    // in delivered rows
  std::vector<int64_t> chunk_begins_;  // in rows
  std::vector<Piece> pieces_;
  ScratchBuffer memory_;  // the permutation's tables
  Once laid_out_;
  std::optional<kernels::Permutation> permutation_;
  std::atomic<int64_t> next_part_ = 0;
  std::atomic<int64_t> num_made_ = 0;
};

}  // namespace torchparquet
