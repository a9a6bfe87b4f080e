#pragma once

#include <array>

#include "kernels/codecs/block_lanes.h"

namespace torchparquet::kernels {

// Decompresses an LZ4 block (LZ4_RAW in Parquet). Returns false if its bytes cannot be
// such a block, or if its content is not as long as `out`, whose bytes are then
// undefined. Never reads or writes outside the spans. Source: lz4/lz4,
// lz4_Block_format.md; it also demands what that document says of the end of a block.
bool DecompressLz4(const CompressedBlock& block);

// The same for two blocks at once, in less time than one after the other.
std::array<bool, 2> DecompressLz4Pair(const CompressedBlock& first,
                                      const CompressedBlock& second);

}  // namespace torchparquet::kernels
