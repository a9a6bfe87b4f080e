#pragma once

#include <cstdint>
#include <span>

namespace torchparquet::kernels {

// A permutation of the rows [0, n) that takes no memory: a Feistel network of
// `keys.size()` rounds over pairs of numbers, which are few more than n, walked until it
// leads to a row (Black and Rogaway, "Ciphers with arbitrary finite domains", 2002). Each
// key is a random word; six rounds take about 15 ns a row. Writes the rows at the
// positions [begin, begin + out.size()).
//
// Throws Error(kInvalidArgument) unless these positions are in [0, n) and n <= 2^62.
void KeyedRows(std::span<const uint64_t> keys, int64_t n, int64_t begin,
               std::span<int64_t> out);

}  // namespace torchparquet::kernels
