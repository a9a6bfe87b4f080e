#pragma once

#include <cstdint>
#include <span>

#include "kernels/codecs/block_lanes.h"
#include "pages/column_chunk.h"
#include "pages/page_header.h"
#include "scratch_buffer.h"

namespace torchparquet {

// The parts of a data page, decompressed. Levels are in the RLE/bit-packing hybrid, and
// empty if the column has none.
struct PageParts {
  std::span<const uint8_t> repetition = {};
  std::span<const uint8_t> definition = {};
  std::span<const uint8_t> values = {};
};

// A data page before it is decompressed: levels of a V2 page, already copied, and the
// bytes that its values, or all of a V1 page, come from and go to.
struct CompressedPage {
  std::span<const uint8_t> repetition;
  std::span<const uint8_t> definition;
  kernels::CompressedBlock block;
};

// All throw Error(kCorruptFile) if the bytes contradict the header.

// True if the page's values, or all of a V1 page, are compressed.
bool IsCompressed(const ColumnChunk& chunk, const PageHeader& header);

// Takes `memory` for a page of a compressed column chunk. The levels of a V2 page are not
// compressed. They are copied, since the page outlives its bytes.
CompressedPage LayOut(const ColumnChunk& chunk, const PageHeader& header,
                      std::span<const uint8_t> body, ScratchBuffer* memory);

// The parts of such a page, decompressed by now, and those of a page in `body` that was
// not compressed. Levels in the deprecated encoding are rewritten into `levels`.
PageParts PartsOf(const ColumnChunk& chunk, const PageHeader& header,
                  const CompressedPage& page, ScratchBuffer* levels);
PageParts PartsOf(const ColumnChunk& chunk, const PageHeader& header,
                  std::span<const uint8_t> body, ScratchBuffer* levels);

}  // namespace torchparquet
