#pragma once

#include <cstdint>

namespace torchparquet::kernels {

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
