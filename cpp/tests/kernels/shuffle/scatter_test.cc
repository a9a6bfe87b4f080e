#include <doctest/doctest.h>

#include <algorithm>
#include <cstring>
#include <utility>
#include <vector>

#include "draws.h"
#include "exact_buffer.h"
#include "kernels/shuffle/partition.h"

namespace torchparquet::kernels {
namespace {

using testing::Draws;
using testing::ExactBuffer;
using testing::RandomBytes;

// Batches of exactly their rows, and the slots of all of their rows in random order.
struct Batches {
  Batches(Draws& draws, int64_t row_bytes) {
    map.row_bits = static_cast<int>(draws.Between(0, 5));
    map.row_bytes = row_bytes;
    const int64_t num_batches = draws.Between(1, 5);
    for (int64_t batch = 0; batch < num_batches; ++batch) {
      const int64_t num_rows = draws.Between(1, int64_t{1} << map.row_bits);
      buffers.emplace_back(static_cast<size_t>(num_rows * row_bytes));
      std::memset(buffers.back().data(), 0xEE, buffers.back().size());
      for (int64_t row = 0; row < num_rows; ++row) {
        slots.push_back(static_cast<uint32_t>(batch << map.row_bits | row));
      }
    }
    for (auto& buffer : buffers) pointers.push_back(buffer.data());
    map.batches = pointers;
    for (size_t i = slots.size(); i > 1; --i) {
      std::swap(slots[i - 1], slots[static_cast<size_t>(draws.Below(std::ssize(slots)))]);
    }
  }
  const uint8_t* At(uint32_t slot) const {
    const uint32_t row = slot % (uint32_t{1} << map.row_bits);
    return pointers[slot >> map.row_bits] + row * map.row_bytes;
  }

  std::vector<ExactBuffer<uint8_t>> buffers;
  std::vector<uint8_t*> pointers;
  std::vector<uint32_t> slots;
  SlotMap map;
};

TEST_CASE("cells of any size stand in their slots, and those without a slot nowhere") {
  Draws draws(204);
  for (int trial = 0; trial < 300; ++trial) {
    const int64_t cell_bytes = draws.Between(1, 40);
    Batches batches(draws, cell_bytes);
    std::vector<uint32_t> slots = batches.slots;
    for (uint32_t& slot : slots) {
      if (draws.OneIn(3)) slot = kNoSlot;
    }
    ExactBuffer<uint8_t> strip(RandomBytes(draws, cell_bytes * std::ssize(slots)));
    ScatterCells(strip.data(), cell_bytes, slots, batches.map);
    const std::vector<uint8_t> untouched(static_cast<size_t>(cell_bytes), 0xEE);
    for (size_t i = 0; i < slots.size(); ++i) {
      const uint8_t* found = batches.At(batches.slots[i]);
      const uint8_t* expected = slots[i] == kNoSlot
                                    ? untouched.data()
                                    : strip.data() + static_cast<int64_t>(i) * cell_bytes;
      CHECK(std::equal(found, found + cell_bytes, expected));
    }
  }
}

TEST_CASE("rows of cells of any size are copied in any order, apart from each other") {
  Draws draws(221);
  for (int trial = 0; trial < 300; ++trial) {
    const int64_t cell_bytes = draws.Between(1, 40);
    const int64_t row_bytes = cell_bytes * draws.Between(1, 3);
    const int64_t num_cells = draws.Between(1, 60);
    ExactBuffer<uint8_t> cells(RandomBytes(draws, cell_bytes * num_cells));
    std::vector<uint32_t> rows(static_cast<size_t>(draws.Between(0, 100)));
    for (uint32_t& row : rows) row = static_cast<uint32_t>(draws.Below(num_cells));
    const std::vector<uint8_t> before =
        RandomBytes(draws, std::max<int64_t>(1, row_bytes * std::ssize(rows)));
    ExactBuffer<uint8_t> out(before);
    GatherCells(cells.data(), cell_bytes, rows, row_bytes, out.data());
    std::vector<uint8_t> expected = before;
    for (size_t i = 0; i < rows.size(); ++i) {
      std::copy_n(cells.data() + rows[i] * cell_bytes, cell_bytes,
                  expected.begin() + static_cast<int64_t>(i) * row_bytes);
    }
    CHECK(std::equal(expected.begin(), expected.end(), out.data()));
  }
}

}  // namespace
}  // namespace torchparquet::kernels
