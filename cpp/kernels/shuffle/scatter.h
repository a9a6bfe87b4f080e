#pragma once

#include <cstdint>
#include <span>

namespace torchparquet::kernels {

// A slot has the number of a batch in its upper bits and a row of the batch in the rest.
// kNoSlot is the slot of rows that are not delivered.
constexpr uint32_t kNoSlot = 0xFFFFFFFF;

// The places of slots: the cells of one field's element in each batch.
struct SlotMap {
  std::span<uint8_t* const> batches;  // the place of row 0 in each
  int row_bits = 0;                   // of a slot
  int64_t row_bytes = 0;              // from row to row
};

// Copies the cells of a strip, one for each slot, in order.
void ScatterCells(const uint8_t* strip, int64_t cell_bytes,
                  std::span<const uint32_t> slots, const SlotMap& map);

// Copies the cells of rows by number, in that order, `row_bytes` apart. Nothing need be
// aligned.
void GatherCells(const uint8_t* cells, int64_t cell_bytes, std::span<const uint32_t> rows,
                 int64_t row_bytes, uint8_t* out);

}  // namespace torchparquet::kernels
