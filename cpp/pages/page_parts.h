#pragma once

#include <cstdint>
#include <span>

#include "base/scratch_buffer.h"
#include "kernels/codecs/block_lanes.h"
#include "pages/column_chunk.h"
#include "pages/page_header.h"
#include "pages/read_ahead.h"

namespace torchparquet {

// The encoded values of a data page, in memory. Or, of a long page, PLAIN values that are
// still in the file, of a column whose values are read piece by piece. Valid as long as
// the page.
class ValueBytes {
 public:
  ValueBytes() = default;
  // Implicit: most pages are in memory.
  ValueBytes(std::span<const uint8_t> bytes) : bytes_(bytes) {}  // NOLINT(*-explicit-*)
  ValueBytes(std::span<uint8_t> bytes) : bytes_(bytes) {}        // NOLINT(*-explicit-*)
  // `file` must outlive the values.
  ValueBytes(ReadAhead* file, const ByteRange& range) : file_(file), range_(range) {}

  // Null if they are in memory.
  ReadAhead* file() const { return file_; }
  const ByteRange& range() const { return range_; }
  std::span<const uint8_t> bytes() const { return bytes_; }

 private:
  std::span<const uint8_t> bytes_;
  ReadAhead* file_ = nullptr;
  ByteRange range_;
};

// The parts of a data page, decompressed. Levels are in the RLE/bit-packing hybrid, and
// empty if the column has none.
struct PageParts {
  std::span<const uint8_t> repetition = {};
  std::span<const uint8_t> definition = {};
  ValueBytes values = {};
};

// A data page before it is decompressed: levels of a V2 page, already copied, and the
// bytes that its values, or all of a V1 page, come from and go to.
struct CompressedPage {
  std::span<const uint8_t> repetition;
  std::span<const uint8_t> definition;
  kernels::CompressedBlock block;
};

// All throw Error(kCorruptFile) if the bytes contradict the header.

// The number of bytes of its levels, in front of its values, of a page that stands at
// `offset` of the file and is not compressed.
int64_t LevelBytes(const ColumnChunk& chunk, const PageHeader& header, int64_t offset,
                   ReadAhead* file);

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
