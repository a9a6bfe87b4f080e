#pragma once

#include <memory>

#include "columns/column_reader.h"

namespace torchparquet {

// Reads a column of lists, the documents, into a field of cells with as many items as a
// sequence: row r of a row group is its packed sequence r. `lists` reads the documents.
// A mask gets the marks of kernels::TokenMark.
std::unique_ptr<ColumnReader> MakePackedReader(
    const std::shared_ptr<const ParquetFile>& file, const ColumnRequest& column,
    const ColumnStart& start, std::unique_ptr<ColumnReader> lists);

}  // namespace torchparquet
