#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "bridge/footer_facts.h"

namespace torchparquet {

// The contents of a footer, except strings and statistics. Views the footer's bytes.
struct FooterScan {
  // The list of the schema's elements as it stands: equal bytes are equal schemas.
  std::string_view schema;
  std::string_view arrow_schema;  // in base64; empty where there is none
  int64_t num_rows = 0;
  std::vector<int64_t> row_group_num_rows;
  std::vector<int64_t> row_group_num_bytes;  // compressed, all columns
  std::vector<ChunkPlace> chunks;            // row group after row group
  // For each column, over all row groups: what its values take, decompressed and with
  // dictionaries resolved where the writer says so; and whether all of its column chunks
  // have as many values as rows. Empty without row groups.
  std::vector<double> column_bytes;
  std::vector<bool> has_value_per_row;
  // Columns whose order is told; nothing where none are.
  std::optional<size_t> num_column_orders;
  // The writer may be one of those whose footers are read in a way of their own: see
  // FooterFacts.
  bool may_have_old_writer = false;
};

// Reads a footer that is plain and sound. Nothing for any other: encrypted, broken,
// lacking what the format demands, or at odds with itself, in what is looked at here.
// Only a real parser can tell what is wrong with it. Damage elsewhere, as in a
// statistic, is told by one when the file's values are read.
//
// Opening thousands of files, Arrow's parser takes most of the time: it makes objects of
// every string, statistic and column chunk.
// Source: parquet-format, parquet.thrift.
std::optional<FooterScan> ScanFooter(std::span<const uint8_t> footer);

}  // namespace torchparquet
