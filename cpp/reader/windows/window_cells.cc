#include "reader/windows/window_cells.h"

#include <algorithm>
#include <utility>

#include "kernels/item_types.h"
#include "kernels/shuffle/partition.h"
#include "kernels/streaming_stores.h"
#include "kernels/values/conversion.h"

namespace torchparquet {
namespace {

// `to` is a place for each cell, or the places of a strip.
template <typename To>
void PartitionCells(const uint8_t* cells, int64_t cell_bytes, const To& to,
                    uint8_t* out) {
  kernels::ForItemBytes(cell_bytes, [&]<typename T>(T) {
    kernels::Partition(reinterpret_cast<const T*>(cells), to, reinterpret_cast<T*>(out));
  });
}

void GatherCells(const uint8_t* staged, int64_t cell_bytes,
                 const WindowPlaces::Piece& piece, int64_t row_bytes, uint8_t* out) {
  kernels::ForItemBytes(cell_bytes, [&]<typename T>(T) {
    const T* items = reinterpret_cast<const T*>(staged);
    kernels::GatherBucket(items + piece.bucket_begin, piece.order,
                          items + piece.next_begin, row_bytes, out);
  });
}

}  // namespace

int64_t WindowCells::StagedBytes(int64_t num_places) const {
  const bool has_valid = place_.valid_offset >= 0;
  return num_places * (cell_bytes_ + (has_valid ? place_.valid_items : 0));
}

void WindowCells::Begin(int64_t num_places, int64_t room_bytes, JaggedMemory* memory) {
  begun_.Do([&] {
    // Mask cells are no larger than values, so values come first.
    const int64_t values_bytes = num_places * cell_bytes_;
    const bool has_valid = place_.valid_offset >= 0;
    // Aligned, so that the items of a run share as few cache lines with others as
    // possible.
    const int64_t num_bytes = StagedBytes(num_places) + kernels::kLineBytes;
    SinkPool::Lease staging = memory->Acquire(room_bytes + kernels::kLineBytes);
    staging->set_max_bytes(static_cast<size_t>(num_bytes));
    values_ = staging->Extend(static_cast<size_t>(num_bytes));
    values_ += -reinterpret_cast<uintptr_t>(values_) % kernels::kLineBytes;
    if (has_valid) valid_ = values_ + values_bytes;
    staging_ = std::move(staging);
  });
}

// Leaves half of the range of differences to later items. Signed, so that items around
// zero lie close together.
void WindowCells::ChooseForm(std::span<const uint64_t> items) {
  // A few items always lie close together.
  constexpr size_t kLeastItems = 512;
  if (items.size() < kLeastItems) return;
  constexpr uint64_t kReach = uint64_t{1} << 32;
  const auto as_signed = [](uint64_t item) { return static_cast<int64_t>(item); };
  const auto [least, most] = std::ranges::minmax(items, {}, as_signed);
  as_differences_ = most - least < kReach / 2;
  base_ = least + (most - least) / 2 - kReach / 2;
}

template <typename To>
void WindowCells::AddValues(const To& to, const uint8_t* values) {
  if (may_lie_close_ && cell_bytes_ == sizeof(uint64_t)) {
    const auto* items = reinterpret_cast<const uint64_t*>(values);
    form_chosen_.Do([&] { ChooseForm({items, to.size()}); });
    if (as_differences_) {
      auto* out = reinterpret_cast<uint32_t*>(values_);
      if (lie_too_far_.load(std::memory_order_relaxed)) return;
      if (!kernels::PartitionDifferences(items, to, base_, out)) {
        lie_too_far_.store(true, std::memory_order_relaxed);
      }
      return;
    }
  }
  PartitionCells(values, cell_bytes_, to, values_);
}

void WindowCells::BeginAgain() {
  as_differences_ = false;
  lie_too_far_ = false;
  added_again_ = true;
}

template <typename To>
void WindowCells::AddTo(const To& to, const uint8_t* values, const uint8_t* valid) {
  AddValues(to, values);
  if (valid != nullptr) PartitionCells(valid, place_.valid_items, to, valid_);
}

void WindowCells::Add(std::span<const uint32_t> places, const uint8_t* values,
                      const uint8_t* valid) {
  AddTo(places, values, valid);
}

void WindowCells::Add(const kernels::StripOrder& strip, const uint8_t* values,
                      const uint8_t* valid) {
  AddTo(strip, values, valid);
}

Segment WindowCells::SegmentOf(int64_t first_row, int64_t num_rows) const {
  uint8_t* valid = valid_;
  if (valid != nullptr) valid += first_row * place_.valid_items;
  return {
      .values = values_ + first_row * cell_bytes_, .valid = valid, .num_rows = num_rows};
}

void WindowCells::Gather(std::span<const uint32_t> rows, int64_t first_row,
                         uint8_t* slab) const {
  const auto gather = [&](const uint8_t* staged, int64_t cell_bytes, int64_t offset) {
    const int64_t row_bytes = place_.width * cell_bytes;
    uint8_t* out = slab + offset + first_row * row_bytes + element_ * cell_bytes;
    if (!AreItems(cell_bytes)) {
      kernels::GatherCells(staged, cell_bytes, rows, row_bytes, out);
      return;
    }
    kernels::ForItemBytes(cell_bytes, [&]<typename T>(T) {
      kernels::GatherItems(reinterpret_cast<const T*>(staged), rows, row_bytes, out);
    });
  };
  gather(values_, cell_bytes_, place_.values_offset);
  if (valid_ != nullptr) gather(valid_, place_.valid_items, place_.valid_offset);
}

void WindowCells::Gather(const WindowPlaces::Piece& piece, uint8_t* slab) const {
  const auto gather = [&](const uint8_t* staged, int64_t cell_bytes, int64_t offset) {
    const int64_t row_bytes = place_.width * cell_bytes;
    uint8_t* out = slab + offset + piece.first_row * row_bytes + element_ * cell_bytes;
    if (staged == values_ && as_differences_) {
      const auto* items = reinterpret_cast<const uint32_t*>(staged);
      kernels::GatherDifferences(items + piece.bucket_begin, piece.order,
                                 items + piece.next_begin, base_, row_bytes, out);
    } else {
      GatherCells(staged, cell_bytes, piece, row_bytes, out);
    }
  };
  gather(values_, cell_bytes_, place_.values_offset);
  if (valid_ != nullptr) gather(valid_, place_.valid_items, place_.valid_offset);
}

}  // namespace torchparquet
