#pragma once

#include <cstdint>
#include <string>

#include "parquet_file.h"
#include "schema.h"
#include "segment_writer.h"

namespace torchparquet {

// A leaf column as the reader was told to deliver it.
struct ColumnRequest {
  std::string path;  // dotted
  std::string kind;  // what the plan says it is; a file that says otherwise is an error
};

// A contiguous range of the rows of one row group.
struct RowRange {
  int64_t row_group = 0;  // within its file
  int64_t begin = 0;
  int64_t num_rows = 0;
};

// Decodes the rows of one column chunk straight to their places in `target`. Pages
// outside the range are skipped undecoded. Throws Error with path, row group and
// column; never delivers fewer rows than asked.
void DecodeColumn(const ParquetFile& file, const ColumnRequest& column,
                  const RowRange& rows, const ColumnTarget& target,
                  DecodeScratch* scratch, DecodeProgress* progress);

}  // namespace torchparquet
