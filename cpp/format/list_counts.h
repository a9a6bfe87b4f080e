#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "format/schema.h"

namespace torchparquet {

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
