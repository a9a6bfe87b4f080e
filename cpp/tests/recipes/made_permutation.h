#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "kernels/shuffle/permutation.h"

namespace torchparquet::testing {

// A permutation with the memory of its tables.
struct MadePermutation {
  MadePermutation(uint64_t key, int64_t n)
      : shape(n),
        tables(static_cast<size_t>(shape.num_table_entries())),
        permutation(key, shape, tables) {
    for (int64_t i = 0; i < permutation.num_parts(); ++i) permutation.MakePart(i);
  }

  std::vector<uint32_t> Positions(int64_t first, int64_t count) const {
    std::vector<uint32_t> positions(static_cast<size_t>(count));
    permutation.Positions(first, count, positions.data());
    return positions;
  }
  std::vector<uint32_t> Rows(int64_t first, int64_t count) const {
    std::vector<uint32_t> rows(static_cast<size_t>(count));
    permutation.Rows(first, count, rows.data());
    return rows;
  }

  kernels::PermutationShape shape;
  std::vector<uint16_t> tables;
  kernels::Permutation permutation;
};

}  // namespace torchparquet::testing
