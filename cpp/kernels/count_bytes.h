#pragma once

#include <cstdint>

namespace torchparquet::kernels {

// How many of the bytes, levels mostly, are `value`, or at least `least`.
int64_t CountEqual(const uint8_t* bytes, int64_t num_bytes, uint8_t value);
int64_t CountAtLeast(const uint8_t* bytes, int64_t num_bytes, uint8_t least);

}  // namespace torchparquet::kernels
