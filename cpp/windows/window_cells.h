#pragma once

#include <atomic>
#include <cstdint>
#include <mutex>
#include <span>

#include "batches/batch_ring.h"
#include "batches/jagged.h"
#include "batches/layout.h"
#include "kernels/shuffle/partition.h"
#include "windows/window_places.h"

namespace torchparquet {

// One column of a window whose cells are items, and their mask: partitioned by bucket as
// they are decoded, until all chunks are there and each batch gets its rows. Chunks may
// be decoded on any threads, each on one.
//
// Items of 8 bytes whose first strip lies close together are staged as differences of 4,
// since to bring them to memory and back is what takes the time: on a Zen 4 that is 5 to
// 16 % of an epoch of the click log of bench/. A column that goes on farther off is
// decoded once more, in the first window of a stream.
class WindowCells {
 public:
  // Of an item type's size.
  static bool AreItems(int64_t cell_bytes) {
    return cell_bytes == 1 || cell_bytes == 2 || cell_bytes == 4 || cell_bytes == 8;
  }

  // `element` is which of the field's cells in each row it is. What `may_lie_close` is
  // looked at for that.
  WindowCells(const FieldPlace& place, int64_t element, int64_t num_chunks,
              bool may_lie_close)
      : place_(place),
        element_(element),
        cell_bytes_(place.cell_items * place.item_bytes),
        may_lie_close_(may_lie_close),
        num_missing_(num_chunks) {}

  // What so many places take until they are gathered.
  int64_t StagedBytes(int64_t num_places) const;
  // To be called before Add. The memory has room for `room_bytes`, as that of all columns
  // has, so that each may have what another leaves. Thread-safe.
  void Begin(int64_t num_places, int64_t room_bytes, JaggedMemory* memory);
  // Takes cells, one for each place, or those of a strip; `valid` is null where no mask
  // is wanted. Both are aligned to their cells.
  void Add(std::span<const uint32_t> places, const uint8_t* values, const uint8_t* valid);
  void Add(const kernels::StripOrder& strip, const uint8_t* values, const uint8_t* valid);
  // Says that a chunk is done; true where it was the last of all.
  bool EndChunk() { return num_missing_.fetch_sub(1, std::memory_order_acq_rel) == 1; }

  // Whether items that came later lay too far off, so that all chunks are to be added
  // once more, after BeginAgain, by one thread. To be asked when all are done.
  bool are_to_be_added_again() const { return lie_too_far_; }
  void BeginAgain();
  bool were_added_again() const { return added_again_; }

  // Writes a piece of a bucket to its batch. All chunks are done.
  void Gather(const WindowPlaces::Piece& piece, uint8_t* slab) const;
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
  std::once_flag begun_;
  SinkPool::Lease staging_;
  uint8_t* values_ = nullptr;  // in there
  uint8_t* valid_ = nullptr;   // null where no mask is wanted
  std::once_flag form_chosen_;
  bool as_differences_ = false;
  uint64_t base_ = 0;  // of differences
  std::atomic<bool> lie_too_far_{false};
  std::atomic<bool> added_again_{false};
  std::atomic<int64_t> num_missing_;
};

}  // namespace torchparquet
