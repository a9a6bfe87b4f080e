#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "base/byte_range.h"

namespace torchparquet {

// Bounds of the values of each data page of one column chunk. Views the index's bytes.
struct ColumnIndex {
  std::vector<bool> has_nulls_only;
  // Of the same length. PLAIN, without a length, and possibly shortened; empty for pages
  // of nulls only.
  std::vector<std::string_view> low;
  std::vector<std::string_view> high;
  std::vector<int64_t> num_nulls;  // empty if the writer does not tell
};

// Nothing for bytes that are no index, and for one whose lists differ in length.
// Source: parquet-format, PageIndex.md and parquet.thrift.
std::optional<ColumnIndex> ParseColumnIndex(std::span<const uint8_t> bytes);

// The places of one column chunk's indexes; without bytes if there is none.
struct IndexPlaces {
  ByteRange column_index;
  ByteRange offset_index;
};

// Of each column chunk, row group after row group. Empty for a footer that is not sound.
std::vector<IndexPlaces> FindIndexes(std::span<const uint8_t> footer);

}  // namespace torchparquet
