#pragma once

#include <cstdint>

namespace torchparquet::kernels {

// Calls `make` with a number of the type that stands for the bits of items of that size.
template <typename Make>
auto ForItemBytes(int64_t item_bytes, Make make) {
  switch (item_bytes) {
    case 1:
      return make(uint8_t{});
    case 2:
      return make(uint16_t{});
    case 4:
      return make(uint32_t{});
    default:
      return make(uint64_t{});
  }
}

// Expands `Declare` for each of these types.
#define TORCHPARQUET_FOR_ITEM_TYPES(Declare) \
  Declare(uint8_t) Declare(uint16_t) Declare(uint32_t) Declare(uint64_t)

}  // namespace torchparquet::kernels
