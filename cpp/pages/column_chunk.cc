#include "pages/column_chunk.h"

#include <algorithm>
#include <string>
#include <vector>

#include "base/errors.h"
#include "bridge/loaded_library.h"

namespace torchparquet {
namespace {

// The most bytes that one compressed byte can become, or 0 if the codec sets no useful
// bound.
int64_t MaxExpansion(int codec) {
  switch (codec) {
    case Codec::kSnappy:
      return 22;  // a copy of 64 bytes takes 3
    case Codec::kLz4:
    case Codec::kLz4Hadoop:
      return 256;  // each further byte of a length adds 255
    case Codec::kGzip:
      return 1032;  // a match of 258 bytes takes 2 bits
    case Codec::kZstd:
      return 128 << 10;  // a block of 128 KiB takes more than one byte
    default:
      return 0;
  }
}

}  // namespace

ColumnChunk DescribeColumnChunk(const ParquetFile& file, int64_t row_group, int column) {
  const std::vector<RowGroupFacts>& groups = file.row_groups();
  if (row_group < 0 || row_group >= std::ssize(groups)) {
    throw CorruptFile("file has only ", groups.size(), " row groups");
  }
  const int64_t num_rows = groups[static_cast<size_t>(row_group)].num_rows;
  const ChunkFacts chunk = file.ColumnChunk(row_group, column);
  const LeafColumn& leaf = file.leaves()[static_cast<size_t>(column)];
  if (leaf.element_levels.empty() && chunk.num_values != num_rows) {
    throw CorruptFile("column chunk claims ", chunk.num_values,
                      " values in a row group of ", num_rows, " rows");
  }
  if (!Arrow().HasCodec(chunk.codec)) {
    throw Error(ErrorKind::kNotSupported,
                "pages are compressed by a codec that is not built in");
  }
  const int codec = chunk.is_encrypted ? int{Codec::kNone} : chunk.codec;
  const ByteRange range = file.ChunkRange(chunk);
  return {.range = range,
          .pages_end = std::min(range.end(), range.offset + chunk.compressed_bytes),
          .dictionary_bytes = std::clamp<int64_t>(chunk.data_page_offset - range.offset,
                                                  0, range.num_bytes),
          .group_rows = num_rows,
          .num_entries = chunk.num_values,
          .codec = codec,
          .is_encrypted = chunk.is_encrypted,
          .is_compressed = codec != Codec::kNone,
          .max_expansion = MaxExpansion(codec),
          .always_compressed = file.footer()->has_wrong_compressed_flags,
          .max_definition_level = leaf.max_level,
          .max_repetition_level = static_cast<int>(leaf.element_levels.size())};
}

}  // namespace torchparquet
