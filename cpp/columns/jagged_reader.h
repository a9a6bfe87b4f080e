#pragma once

#include <memory>

#include "columns/column_reader.h"

namespace torchparquet {

// Reads a column of strings or lists into a field of variable length.
std::unique_ptr<ColumnReader> MakeJaggedReader(std::shared_ptr<const ParquetFile> file,
                                               const ColumnRequest& column,
                                               const ColumnStart& start,
                                               ColumnBuffers buffers);

}  // namespace torchparquet
