#pragma once

#include <cstdint>

#include "kernels/streaming_stores.h"

namespace torchparquet::kernels {

// Writes `num_rows` values: the next of `dense` where `validity` is 1, else `fill`. T is
// a bit pattern of 1, 2, 4 or 8 bytes. kExpandReadableItems behind the last value of
// `dense` must be readable.
template <typename T>
using ExpandFunction = void (*)(const T* dense, const uint8_t* validity, int64_t num_rows,
                                T fill, T* out);
template <typename T>
constexpr int64_t kExpandReadableItems = 32 / sizeof(T);

// The fastest that this processor runs. One that stores past the cache does so as far as
// `out` is aligned.
template <typename T>
ExpandFunction<T> ChooseExpand(Stores stores);

// Row by row; each other one must do as it does.
template <typename T>
void PlainExpand(const T* dense, const uint8_t* validity, int64_t num_rows, T fill,
                 T* out);

// The same for cells of `cell_items` values each.
template <typename T>
void ExpandCells(const T* dense, const uint8_t* validity, int64_t num_rows,
                 int64_t cell_items, T fill, T* out);

}  // namespace torchparquet::kernels
