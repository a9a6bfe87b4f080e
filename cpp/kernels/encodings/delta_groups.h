#pragma once

#include <cstdint>

namespace torchparquet::kernels {

// Bits of a packed delta.
inline constexpr int kMaxDeltaWidth = 64;

// Decodes `num_groups` groups of eight packed deltas to values. Each value is the value
// before it, at first `last`, plus `min_delta` plus its delta, modulo the width of T.
// Returns the last value. One loop unpacks and sums, without an array of deltas.
//
// GroupReadableBytes(width) bytes must be readable from the start of every group.
template <typename T>
using DecodeDeltasFunction = T (*)(const uint8_t* in, int64_t num_groups, T min_delta,
                                   T last, T* out);

// The function for a bit width up to kMaxDeltaWidth. T is uint32_t or uint64_t.
template <typename T>
DecodeDeltasFunction<T> ChooseDecodeDeltas(int width);

}  // namespace torchparquet::kernels
