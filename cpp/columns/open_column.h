#pragma once

#include <cstdint>
#include <memory>

#include "columns/column_reader.h"

namespace torchparquet {

// Starts to read a column chunk at `place`, by the reader for the kind of column.
// `buffers` come from an earlier reader, or are fresh. `selection` has the rows to read;
// null for all. Throws Error with path, row group and column if the file's column is not
// the requested one or its footer contradicts itself.
std::unique_ptr<ColumnReader> OpenColumn(
    const std::shared_ptr<const ParquetFile>& file, const ColumnRequest& column,
    int64_t row_group, const PagePlace& place, ColumnBuffers buffers,
    std::shared_ptr<const RowSelection> selection = nullptr);

// Delivers `bits` in every row, without a file.
std::unique_ptr<ColumnReader> OpenConstant(const ColumnRequest& column, uint64_t bits);

}  // namespace torchparquet
