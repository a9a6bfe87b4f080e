#pragma once

#include <cstdint>

namespace torchparquet::kernels {

// Decodes `num_groups` groups of eight packed deltas to values: each is the one before
// it, `last` at first, plus `min_delta` plus its delta, all modulo the width of T.
// Returns the last value. Unpacking and prefix sum are one loop, with no array of deltas
// between.
//
// GroupReadableBytes(width) bytes must be readable from the start of every group.
template <typename T>
using DecodeDeltasFunction = T (*)(const uint8_t* in, int64_t num_groups, T min_delta,
                                   T last, T* out);

// The function for a bit width of 0 to that of T, which is uint32_t or uint64_t.
template <typename T>
DecodeDeltasFunction<T> ChooseDecodeDeltas(int width);

}  // namespace torchparquet::kernels
