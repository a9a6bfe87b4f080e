#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "base/byte_range.h"
#include "format/schema.h"

namespace torchparquet {

// The bytes of a Bloom filter with its header, by the header at the start of `bytes`.
// Nothing for a header that does not end there, and for other filters than the format's
// one kind.
std::optional<int64_t> BloomFilterBytes(std::span<const uint8_t> bytes);

// True if a value of that encoding, PLAIN without a length, may be among those of the
// column chunk. `filter` has as many bytes as BloomFilterBytes says.
// Source: parquet-format, BloomFilter.md: split block Bloom filters, XXH64.
bool MayHold(std::span<const uint8_t> filter, std::span<const uint8_t> value);

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

// The lists of one column chunk, counted by its writer.
struct ListCounts {
  int64_t num_items = -1;  // with null ones; -1: not told
  int64_t num_filled = 0;  // lists that are neither null nor empty
};

// Of each row group, for the column `column` of the footer, which is of lists that hold
// no lists. Not told where the writer left out the histograms of levels, or where these
// contradict the numbers of rows and values. Empty for a footer that is not sound.
// Source: parquet-format, parquet.thrift, SizeStatistics.
std::vector<ListCounts> CountLists(std::span<const uint8_t> footer, int64_t column,
                                   const LeafColumn& leaf);

}  // namespace torchparquet
