#pragma once

#include <algorithm>
#include <cstdint>

namespace torchparquet::kernels {

// How decoded values reach their place in a batch. T is a bit pattern of 1, 2, 4 or
// 8 bytes; strides count elements of T.

// Writes `num_rows` values: the next of `dense` where `validity` is 1, else `fill`.
// `dense` must have at least one readable element even when no row is valid.
template <typename T>
inline void ExpandNulls(const T* dense, const uint8_t* validity, int64_t num_rows, T fill,
                        T* out) {
  int64_t next = 0;
  int64_t last = 0;
  for (int64_t row = 0; row < num_rows; ++row) {
    // Reading at `last` keeps the load in bounds after the final stored value.
    last = validity[row] ? next : last;
    out[row] = validity[row] ? dense[last] : fill;
    next += validity[row];
  }
}

// The same for cells of `cell_items` values each.
template <typename T>
inline void ExpandNullCells(const T* dense, const uint8_t* validity, int64_t num_rows,
                            int64_t cell_items, T fill, T* out) {
  for (int64_t row = 0; row < num_rows; ++row, out += cell_items) {
    if (validity[row]) {
      std::copy_n(dense, cell_items, out);
      dense += cell_items;
    } else {
      std::fill_n(out, cell_items, fill);
    }
  }
}

template <typename T>
inline void ScatterStrided(const T* values, int64_t num_rows, int64_t stride, T* out) {
  for (int64_t row = 0; row < num_rows; ++row) out[row * stride] = values[row];
}

template <typename T>
inline void FillStrided(T value, int64_t num_rows, int64_t stride, T* out) {
  for (int64_t row = 0; row < num_rows; ++row) out[row * stride] = value;
}

}  // namespace torchparquet::kernels
