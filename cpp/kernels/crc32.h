#pragma once

#include <cstdint>
#include <span>

namespace torchparquet::kernels {

// The CRC-32 of Parquet's pages, as zlib and gzip have it: polynomial 0x04C11DB7,
// reflected. Carry-less products where the processor has them, which takes a small part
// of the time of tables; both give the same.
uint32_t Crc32(std::span<const uint8_t> bytes);

// As Crc32, by the variant for every processor. To be tested against.
uint32_t PlainCrc32(std::span<const uint8_t> bytes);

}  // namespace torchparquet::kernels
