#include "kernels/shuffle/scatter.h"

#include <cstddef>
#include <cstring>

namespace torchparquet::kernels {
namespace {

uint8_t* PlaceOf(uint32_t slot, const SlotMap& map) {
  const uint32_t row = slot & ((uint32_t{1} << map.row_bits) - 1);
  // No check: slots come from the reader, not from files.
  return map.batches[slot >> map.row_bits] + row * map.row_bytes;
}

}  // namespace

void ScatterCells(const uint8_t* strip, int64_t cell_bytes,
                  std::span<const uint32_t> slots, const SlotMap& map) {
  for (const uint32_t slot : slots) {
    if (slot != kNoSlot) {
      std::memcpy(PlaceOf(slot, map), strip, static_cast<size_t>(cell_bytes));
    }
    strip += cell_bytes;
  }
}

void GatherCells(const uint8_t* cells, int64_t cell_bytes, std::span<const uint32_t> rows,
                 int64_t row_bytes, uint8_t* out) {
  for (const uint32_t row : rows) {
    std::memcpy(out, cells + row * cell_bytes, static_cast<size_t>(cell_bytes));
    out += row_bytes;
  }
}

}  // namespace torchparquet::kernels
