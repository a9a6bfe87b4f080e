#include "kernels/shuffle/scatter.h"

#include <cstddef>
#include <cstring>
#include <type_traits>

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
  // The compiler turns copies of a constant size to moves.
  const auto gather = [&](auto size) {
    const auto num_bytes = static_cast<size_t>(size);
    for (const uint32_t row : rows) {
      std::memcpy(out, cells + row * num_bytes, num_bytes);
      out += row_bytes;
    }
  };
  switch (cell_bytes) {
    case 1:
      return gather(std::integral_constant<int64_t, 1>());
    case 2:
      return gather(std::integral_constant<int64_t, 2>());
    case 4:
      return gather(std::integral_constant<int64_t, 4>());
    case 8:
      return gather(std::integral_constant<int64_t, 8>());
    default:
      return gather(cell_bytes);
  }
}

}  // namespace torchparquet::kernels
