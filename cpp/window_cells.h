#pragma once

#include <atomic>
#include <cstdint>
#include <mutex>
#include <span>

#include "batch_ring.h"
#include "jagged.h"
#include "layout.h"
#include "window_places.h"

namespace torchparquet {

// One column of a window whose cells are items, and their mask: partitioned by bucket as
// they are decoded, until all chunks are there and each batch gets its rows. Chunks may
// be decoded on any threads, each on one.
class WindowCells {
 public:
  // Of an item type's size.
  static bool AreItems(int64_t cell_bytes) {
    return cell_bytes == 1 || cell_bytes == 2 || cell_bytes == 4 || cell_bytes == 8;
  }

  // `element` is which of the field's cells in each row it is.
  WindowCells(const FieldPlace& place, int64_t element, int64_t num_chunks)
      : place_(place),
        element_(element),
        cell_bytes_(place.cell_items * place.item_bytes),
        num_missing_(num_chunks) {}

  // What so many places take until they are gathered.
  int64_t StagedBytes(int64_t num_places) const;
  // To be called before Add. The memory has room for `room_bytes`, as that of all columns
  // has, so that each may have what another leaves. Thread-safe.
  void Begin(int64_t num_places, int64_t room_bytes, JaggedMemory* memory);
  // Takes cells, one for each place; `valid` is null where no mask is wanted. Both are
  // aligned to their cells.
  void Add(std::span<const uint32_t> places, const uint8_t* values, const uint8_t* valid);
  // Says that a chunk is done; true where it was the last of all.
  bool EndChunk() { return num_missing_.fetch_sub(1, std::memory_order_acq_rel) == 1; }

  // Writes a piece of a bucket to its batch. All chunks are done.
  void Gather(const WindowPlaces& places, const WindowPlaces::Piece& piece,
              uint8_t* slab) const;
  // Gives the memory back.
  void Clear() { staging_ = {}; }

 private:
  const FieldPlace& place_;
  const int64_t element_;
  const int64_t cell_bytes_;
  std::once_flag begun_;
  SinkPool::Lease staging_;
  uint8_t* values_ = nullptr;  // in there
  uint8_t* valid_ = nullptr;   // null where no mask is wanted
  std::atomic<int64_t> num_missing_;
};

}  // namespace torchparquet
