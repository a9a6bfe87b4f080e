#pragma once

#include <cstdint>
#include <memory>

#include "columns/column_reader.h"

namespace torchparquet {

// Starts to read a column chunk at `place`, by the reader for the kind of column.
// `buffers` come from an earlier reader, or are fresh. `selection` has the rows to read;
// null for all. `stored` has the column's path in file `file_number`; null if it is that
// of the request. Throws Error with path, row group and column if the file's column is
// not the requested one or its footer contradicts itself.
std::unique_ptr<ColumnReader> OpenColumn(
    const std::shared_ptr<const ParquetFile>& file, const ColumnRequest& column,
    int64_t row_group, const PagePlace& place, ColumnBuffers buffers,
    std::shared_ptr<const RowSelection> selection = nullptr,
    const StoredColumn* stored = nullptr, int64_t file_number = 0);

// Delivers `bits` in every row, without a file.
std::unique_ptr<ColumnReader> OpenConstant(const ColumnRequest& column, uint64_t bits);

}  // namespace torchparquet
