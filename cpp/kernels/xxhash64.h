#pragma once

#include <cstdint>
#include <span>

namespace torchparquet::kernels {

// XXH64. Source: the specification in the repository of xxHash.
uint64_t XxHash64(std::span<const uint8_t> bytes, uint64_t seed = 0);

}  // namespace torchparquet::kernels
