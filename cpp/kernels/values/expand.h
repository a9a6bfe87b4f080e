#pragma once

#include <cstdint>

#include "kernels/streaming_stores.h"

namespace torchparquet::kernels {

// Writes `num_rows` values: the next value of `dense` if `validity` is 1, else `fill`. T
// is a bit pattern of 1, 2, 4 or 8 bytes. kExpandReadableItems items after the last value
// of `dense` must be readable.
template <typename T>
using ExpandFunction = void (*)(const T* dense, const uint8_t* validity, int64_t num_rows,
                                T fill, T* out);
template <typename T>
constexpr int64_t kExpandReadableItems = 32 / sizeof(T);

// The fastest variant for this processor. A streaming variant streams the part of `out`
// that is aligned.
template <typename T>
ExpandFunction<T> ChooseExpand(Stores stores);

// Row by row. Every other variant must give the same result.
template <typename T>
void PlainExpand(const T* dense, const uint8_t* validity, int64_t num_rows, T fill,
                 T* out);

// As PlainExpand, for cells of `cell_items` values each.
template <typename T>
void ExpandCells(const T* dense, const uint8_t* validity, int64_t num_rows,
                 int64_t cell_items, T fill, T* out);

// Writes decoded values to their place in a batch. T is a bit pattern of 1, 2, 4 or 8
// bytes; strides count elements of T.

template <typename T>
inline void ScatterStrided(const T* values, int64_t num_rows, int64_t stride, T* out) {
  for (int64_t row = 0; row < num_rows; ++row) out[row * stride] = values[row];
}

template <typename T>
inline void FillStrided(T value, int64_t num_rows, int64_t stride, T* out) {
  for (int64_t row = 0; row < num_rows; ++row) out[row * stride] = value;
}

}  // namespace torchparquet::kernels
