#pragma once

#include <memory>

#include "columns/column_reader.h"

namespace torchparquet {

// Reads a column of lists that all have the requested length, into a field of cells with
// as many items. Another length is an error.
std::unique_ptr<ColumnReader> MakeFixedListReader(std::shared_ptr<const ParquetFile> file,
                                                  const ColumnRequest& column,
                                                  const ColumnStart& start,
                                                  ColumnBuffers buffers);

}  // namespace torchparquet
