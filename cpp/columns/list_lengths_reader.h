#pragma once

#include <memory>

#include "columns/column_reader.h"

namespace torchparquet {

// Reads the lengths of a column's lists into an int64 field, and no value. Null lists
// have length 0, null elements count.
std::unique_ptr<ColumnReader> MakeListLengthsReader(
    std::shared_ptr<const ParquetFile> file, const ColumnRequest& column,
    const ColumnStart& start, ColumnBuffers buffers);

}  // namespace torchparquet
