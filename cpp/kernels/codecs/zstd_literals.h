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

// Literals of a block in streams of a Huffman code, and how far they are decoded. Of four
// streams, each has a quarter of the literals, rounded up, and the last one the rest.
struct ZstdStreams {
  size_t num_streams = 0;  // 1, 4, or 0 for none
  size_t num_literals = 0;
  int64_t num_done = 0;                            // of each stream
  std::array<BackwardBits, kNumZstdStreams> bits;  // of the others
};

// Decodes as many literals of both blocks, by the tables in `memory`, as the shortest of
// their streams has left, but its last ones.
void DecodeLiterals(const std::array<ZstdStreams*, 2>& lanes, ZstdLiteralMemory* memory);
// Decodes what one block has left. Its literals are at LiteralsOf(lane) then. Returns
// whether its streams are good.
bool FinishLiterals(size_t lane, ZstdStreams* streams, ZstdLiteralMemory* memory);

}  // namespace torchparquet::kernels
