#pragma once

#include <cstdint>

namespace torchparquet::kernels {

// Copies the items whose bit is set in `bits`, in order, and returns their number. Bit i
// of word w is that of item 64 * w + i; bits after the last item are zero. T is a bit
// pattern of 1, 2, 4 or 8 bytes. kSelectSlackItems items after the last one of `items`
// must be readable, and as many after the last one copied writable.
template <typename T>
using SelectFunction = int64_t (*)(const T* items, const uint64_t* bits,
                                   int64_t num_items, T* out);
template <typename T>
constexpr int64_t kSelectSlackItems = 32 / sizeof(T);

// The fastest variant for this processor.
template <typename T>
SelectFunction<T> ChooseSelect();

// Item by item. Every other variant must give the same result.
template <typename T>
int64_t PlainSelect(const T* items, const uint64_t* bits, int64_t num_items, T* out);

}  // namespace torchparquet::kernels
