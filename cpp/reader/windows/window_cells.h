#pragma once

#include <atomic>
#include <cstdint>
#include <span>

#include "base/once.h"
#include "batches/batch_ring.h"
#include "batches/column_target.h"
#include "batches/jagged.h"
#include "batches/layout.h"
#include "kernels/shuffle/partition.h"
#include "reader/windows/window_places.h"

namespace torchparquet {

// One column of a window whose cells are items, with its mask. Cells are partitioned by
// bucket as they are decoded. When all chunks are there, each batch gets its rows. Any
// thread may decode a chunk; one thread decodes it whole. In a window with an order,
// cells may have any size, and are decoded to where they are staged, row after row.
//
// Items of 8 bytes are staged as differences of 4 bytes if those of the first strip lie
// close together. Memory traffic takes most of the time: on a Zen 4, this saves 5 to 16 %
// of an epoch of the click log of bench/. A column whose later items lie too far apart is
// decoded again; that happens only in the first window of a stream.
class WindowCells {
 public:
  // True for the size of an item type.
  static bool AreItems(int64_t cell_bytes) {
    return cell_bytes == 1 || cell_bytes == 2 || cell_bytes == 4 || cell_bytes == 8;
  }

  // `element` is the number of the cell in each row of the field. The first strip is
  // checked for close items only if `may_lie_close`. `num_tasks` add a chunk or gather.
  WindowCells(const FieldPlace& place, int64_t element, int64_t num_tasks,
              bool may_lie_close)
      : place_(place),
        element_(element),
        cell_bytes_(place.cell_items * place.item_bytes),
        may_lie_close_(may_lie_close),
        num_unfinished_(num_tasks) {}

  // The bytes that `num_places` places take until they are gathered.
  int64_t StagedBytes(int64_t num_places) const;
  // Call it before Add. The memory has room for `room_bytes`, which is the same for all
  // columns, so that one can reuse the memory of another. Thread-safe.
  void Begin(int64_t num_places, int64_t room_bytes, JaggedMemory* memory);
  // Adds cells, one for each place, or the cells of a strip. `valid` is null if no mask
  // is wanted. Both are aligned to their cells.
  void Add(std::span<const uint32_t> places, const uint8_t* values, const uint8_t* valid);
  void Add(const kernels::StripOrder& strip, const uint8_t* values, const uint8_t* valid);
  // The memory that rows of a window with an order are decoded to.
  Segment SegmentOf(int64_t first_row, int64_t num_rows) const;
  // Ends a task. Returns how many are left.
  int64_t EndTask() {
    return num_unfinished_.fetch_sub(1, std::memory_order_acq_rel) - 1;
  }

  // True if later items lay too far apart. Then one thread calls BeginAgain and adds all
  // chunks again. Valid when all chunks are done.
  bool are_to_be_added_again() const { return lie_too_far_; }
  void BeginAgain();
  bool were_added_again() const { return added_again_; }

  // Writes a piece of a bucket to its batch. All chunks must be done.
  void Gather(const WindowPlaces::Piece& piece, uint8_t* slab) const;
  // The same for rows of a window with an order, which go to a batch's rows from
  // `first_row` on.
  void Gather(std::span<const uint32_t> rows, int64_t first_row, uint8_t* slab) const;
  // Gives the memory back.
  void Clear() { staging_ = {}; }

 private:
  void ChooseForm(std::span<const uint64_t> items);
  template <typename To>
  void AddTo(const To& to, const uint8_t* values, const uint8_t* valid);
  template <typename To>
  void AddValues(const To& to, const uint8_t* values);

  const FieldPlace& place_;
  const int64_t element_;
  const int64_t cell_bytes_;
  const bool may_lie_close_;
  Once begun_;
  SinkPool::Lease staging_;
  uint8_t* values_ = nullptr;  // in staging_
  uint8_t* valid_ = nullptr;   // null if no mask is wanted
  Once form_chosen_;
  bool as_differences_ = false;
  uint64_t base_ = 0;  // of differences
  std::atomic<bool> lie_too_far_{false};
  std::atomic<bool> added_again_{false};
  std::atomic<int64_t> num_unfinished_;
};

}  // namespace torchparquet
