#pragma once

#include <cstdint>

#include "kernels/streaming_stores.h"

namespace torchparquet::kernels {

// Decodes `num_groups` groups of eight packed indices straight to dictionary values. One
// loop unpacks, looks up and stores, without an array of indices. Returns true if an
// index exceeded `limit`, the last legal one.
//
// Every index that the width can express must be addressable in `dictionary`, and
// GroupReadableBytes(width) bytes readable from the start of every group.
template <typename T>
using DecodeGroupsFunction = bool (*)(const uint8_t* in, int64_t num_groups,
                                      const T* dictionary, int64_t limit, T* out);

// The fastest variant that this processor runs, for a bit width of 0 to 32. T is
// uint8_t, uint16_t, uint32_t or uint64_t.
template <typename T>
DecodeGroupsFunction<T> ChooseDecodeGroups(int width);

// A variant with streaming stores. `out` must be aligned to kStreamingAlignment. Null if
// this processor, this width or the size of T has no such variant.
template <typename T>
DecodeGroupsFunction<T> ChooseDecodeGroupsStreaming(int width);
constexpr uintptr_t kStreamingAlignment = 32;

// The variants, for tests.
template <typename T>
DecodeGroupsFunction<T> PlainDecodeGroups(int width);
// Null if this processor or this width (above 25) has no such variant.
template <typename T>
DecodeGroupsFunction<T> Avx2DecodeGroups(int width);

}  // namespace torchparquet::kernels
