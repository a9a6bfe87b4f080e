#pragma once

#include <cstdint>
#include <cstring>
#include <limits>
#include <string>

#include "errors.h"

namespace torchparquet::kernels {

// Converters from the stored form of a value to the bit pattern of the output type.
// `Convert` reads `num_values` values from `in`, which need not be aligned, and
// throws Error(kCorruptFile) where a value cannot be one of its logical type.

// The stored bytes are the output bytes: INT32, INT64, FLOAT, DOUBLE, FLOAT16.
template <typename T>
struct SameBits {
  using Out = T;
  static constexpr int64_t kStoredBytes = sizeof(T);
  static void Convert(const uint8_t* in, int64_t num_values, T* out) {
    std::memcpy(out, in, static_cast<size_t>(num_values) * sizeof(T));
  }
};

// INT32 annotated as an integer of 8 or 16 bits. Small is the annotated type.
template <typename Small>
struct NarrowedInt32 {
  using Out = std::make_unsigned_t<Small>;
  static constexpr int64_t kStoredBytes = 4;
  static void Convert(const uint8_t* in, int64_t num_values, Out* out) {
    // The difference of a value and its narrowed self is zero exactly when it fits.
    int32_t difference = 0;
    for (int64_t i = 0; i < num_values; ++i) {
      int32_t value;
      std::memcpy(&value, in + 4 * i, 4);
      const auto narrowed = static_cast<Small>(value);
      difference |= value ^ static_cast<int32_t>(narrowed);
      out[i] = static_cast<Out>(narrowed);
    }
    if (difference != 0) {
      throw CorruptFile("stored value does not fit the column's type of " +
                        std::to_string(8 * sizeof(Small)) + " bits");
    }
  }
};

// INT32 dates and times of day, which are delivered as int64.
struct WidenedInt32 {
  using Out = uint64_t;
  static constexpr int64_t kStoredBytes = 4;
  static void Convert(const uint8_t* in, int64_t num_values, uint64_t* out) {
    for (int64_t i = 0; i < num_values; ++i) {
      int32_t value;
      std::memcpy(&value, in + 4 * i, 4);
      out[i] = static_cast<uint64_t>(int64_t{value});
    }
  }
};

}  // namespace torchparquet::kernels
