#pragma once

#include <memory>

#include "columns/column_reader.h"

namespace torchparquet {

// Reads a column without repetition and with values of one size.
std::unique_ptr<ColumnReader> MakeFlatReader(std::shared_ptr<const ParquetFile> file,
                                             const ColumnRequest& column,
                                             const ColumnStart& start,
                                             ColumnBuffers buffers);

}  // namespace torchparquet
