#pragma once

#include <array>

#include "kernels/codecs/block_lanes.h"

namespace torchparquet::kernels {

// Decompresses a Snappy block. Returns false if its bytes cannot be such a block, or if
// its content is not as long as `out`, whose bytes are then undefined. Never reads or
// writes outside the spans. Source: google/snappy, format_description.txt.
bool DecompressSnappy(const CompressedBlock& block);

// The same for two blocks at once, in less time than one after the other.
std::array<bool, 2> DecompressSnappyPair(const CompressedBlock& first,
                                         const CompressedBlock& second);

}  // namespace torchparquet::kernels
