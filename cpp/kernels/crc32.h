#pragma once

#include <cstdint>
#include <span>

namespace torchparquet::kernels {

// The CRC-32 of Parquet's pages, as in zlib and gzip: polynomial 0x04C11DB7, reflected.
// Uses carry-less products if the processor has them, which take a small part of the time
// of tables. Both give the same result.
uint32_t Crc32(std::span<const uint8_t> bytes);

// As Crc32, by the variant for every processor. For tests.
uint32_t PlainCrc32(std::span<const uint8_t> bytes);

}  // namespace torchparquet::kernels
