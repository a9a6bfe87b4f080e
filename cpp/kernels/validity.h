#pragma once

#include <cstdint>
#include <span>

namespace torchparquet::kernels {

// Decodes the definition levels of one page of a column without repetition to one
// byte per row: 1 where the level is `max_level`, so that a value is stored, else 0.
// Returns the number of stored values.
//
// `runs` is the hybrid encoding of the levels, `validity` has room for `num_rows`
// bytes. When every row has a value in a single repeated run, which is what most
// writers store for a column without nulls, nothing is written to `validity`.
// Throws Error(kCorruptFile) for a level above `max_level` or too few levels.
int64_t DecodeValidity(std::span<const uint8_t> runs, int max_level, int64_t num_rows,
                       uint8_t* validity);

// Writes the first `num_values` bits of `bits`, LSB first, as bytes 0 and 1. Reads
// only the bytes that hold those bits.
void UnpackBits(const uint8_t* bits, int64_t num_values, uint8_t* out);

}  // namespace torchparquet::kernels
