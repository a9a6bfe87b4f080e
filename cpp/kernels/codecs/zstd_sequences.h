#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

#include "kernels/codecs/zstd_bits.h"
#include "kernels/codecs/zstd_tables.h"

namespace torchparquet::kernels {

// Literals, then a copy of what was decompressed before. The number of the copy's offset
// is 1 to 3 for one of the last offsets, or the offset and 3.
struct ZstdSequence {
  uint32_t num_literals;
  uint32_t copy_bytes;
  uint32_t offset_number;
};

// Memory for the sequences of two blocks, and for the tables of their codes. Distances
// that are constant leave the registers to the states.
struct ZstdSequenceMemory {
  // Each copies 3 bytes or more.
  static constexpr size_t kMaxSequences = (size_t{128} << 10) / 3;

  std::array<ZstdStateTables, 2> tables;
  std::array<std::array<ZstdSequence, kMaxSequences>, 2> sequences;
};

// Sequences of a block in their codes, and how far they are decoded.
struct ZstdCodedSequences {
  size_t num_sequences = 0;
  size_t num_done = 0;
  BackwardBits bits;                                   // of the others
  std::array<const ZstdCell*, kNumZstdCodes> cells{};  // of the next one

  // Takes the cells of the first sequence. Returns false if bits are lacking.
  bool Begin(const ZstdStateTables& tables);
};

// Decodes as many sequences of both blocks, by the tables in `memory`, as the one with
// fewer has left, but its last one.
void DecodeSequences(const std::array<ZstdCodedSequences*, 2>& lanes,
                     ZstdSequenceMemory* memory);
// Decodes what one block has left. Returns whether its bits are good.
bool FinishSequences(size_t lane, ZstdCodedSequences* coded, ZstdSequenceMemory* memory);

}  // namespace torchparquet::kernels
