#pragma once

#include <cstdint>
#include <memory>
#include <span>

#include "parquet_file.h"
#include "scratch.h"

namespace parquet {
class DataPage;
class PageReader;
}  // namespace parquet

namespace torchparquet {

// Opens the pages of one column chunk, after checking what the footer claims of it
// against the file and the row group. Page checksums are verified where present.
std::unique_ptr<parquet::PageReader> OpenColumnPages(const ParquetFile& file, int64_t row_group,
                                                     int column, ScratchBuffer* window);

// The two parts of a data page of a column without repetition.
struct PageParts {
  std::span<const uint8_t> levels;  // definition levels; empty for a required column
  std::span<const uint8_t> values;
  bool bit_packed_levels = false;   // the deprecated encoding of some old writers
};

// Throws Error(kCorruptFile) where the page is too short for what it claims.
PageParts SplitPage(const parquet::DataPage& page, int max_definition_level);

}  // namespace torchparquet
