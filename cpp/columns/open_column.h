#pragma once

#include <cstdint>
#include <memory>

#include "columns/column_reader.h"

namespace torchparquet {

// Starts to read a column chunk at `place`, by the reader for the column's kind.
// `buffers` are those of an earlier reader, or fresh. Throws Error with path, row group
// and column when the file's column is not the one requested or its footer contradicts
// itself.
std::unique_ptr<ColumnReader> OpenColumn(const std::shared_ptr<const ParquetFile>& file,
                                         const ColumnRequest& column, int64_t row_group,
                                         const PagePlace& place, ColumnBuffers buffers);

// Delivers `bits` in every row, of no file.
std::unique_ptr<ColumnReader> OpenConstant(const ColumnRequest& column, uint64_t bits);

}  // namespace torchparquet
