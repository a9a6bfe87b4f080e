#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

#include "kernels/codecs/zstd_bits.h"
#include "kernels/codecs/zstd_tables.h"

namespace torchparquet::kernels {

inline constexpr size_t kNumZstdStreams = 4;

// Memory for the literals of two blocks, and for their Huffman tables. Distances that are
// constant leave the registers to the streams.
struct ZstdLiteralMemory {
  static constexpr size_t kMaxLiterals = size_t{128} << 10;
  // A quarter of the literals. Some lines of the cache more, so that streams do not meet
  // in the same sets of it.
  static constexpr size_t kStreamBytes = kMaxLiterals / kNumZstdStreams + size_t{5} * 64;

  std::array<ZstdHuffmanTable, 2> tables;
  std::array<std::array<uint8_t, kStreamBytes>, 2 * kNumZstdStreams> streams;

  // Of one block, and more than 32 bytes after them.
  uint8_t* LiteralsOf(size_t lane) { return streams[kNumZstdStreams * lane].data(); }
};

// Literals in streams of a Huffman code. Of four streams, each has a quarter of the
// literals, rounded up, and the last one the rest.
struct ZstdStreams {
  size_t num_streams = 0;  // 1, 4, or 0 for none
  size_t num_literals = 0;
  std::array<BackwardBits, kNumZstdStreams> bits;
};

// Decodes the streams of one block or of two at once by the tables in `memory`, to
// LiteralsOf 0 and 1. Returns which of them are good.
std::array<bool, 2> DecodeLiterals(const std::array<const ZstdStreams*, 2>& lanes,
                                   ZstdLiteralMemory* memory);

}  // namespace torchparquet::kernels
