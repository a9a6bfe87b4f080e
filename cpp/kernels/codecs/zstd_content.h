#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

#include "kernels/codecs/zstd_sequences.h"

namespace torchparquet::kernels {

// The last three offsets of a frame, the latest first.
using ZstdOffsets = std::array<size_t, 3>;

// A block whose sequences are decoded.
struct ZstdContent {
  // 32 bytes after them can be read.
  std::span<const uint8_t> literals;
  std::span<const ZstdSequence> sequences;
};

// The memory that the content of a block is written to.
struct ZstdPlace {
  uint8_t* frame_begin;
  uint8_t* out;
  uint8_t* end;  // of the memory
};

// Writes the content of a block. Returns its end, or null if an offset leads out of the
// frame, or the content does not fit.
uint8_t* WriteContent(const ZstdContent& content, const ZstdPlace& place,
                      ZstdOffsets* offsets);

}  // namespace torchparquet::kernels
