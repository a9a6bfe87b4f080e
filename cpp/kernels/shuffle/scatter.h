#pragma once

#include <cstdint>
#include <span>

namespace torchparquet::kernels {

// A slot is the number of a batch in its upper bits and a row of it in the rest. This is
// that of rows that go nowhere.
constexpr uint32_t kNoSlot = 0xFFFFFFFF;

// Where slots are: the cells of one field's element in each batch.
struct SlotMap {
  std::span<uint8_t* const> batches;  // of each the place of its row 0
  int row_bits = 0;                   // of a slot
  int64_t row_bytes = 0;              // from row to row
};

// Copies a strip's cells, one for each slot, in order.
void ScatterCells(const uint8_t* strip, int64_t cell_bytes,
                  std::span<const uint32_t> slots, const SlotMap& map);

}  // namespace torchparquet::kernels
