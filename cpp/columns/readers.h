#pragma once

#include <memory>

#include "columns/column_reader.h"

namespace torchparquet {

// The readers of each kind of column. OpenColumn chooses one.

// Reads a column without repetition and with values of one size.
std::unique_ptr<ColumnReader> MakeFlatReader(std::shared_ptr<const ParquetFile> file,
                                             const ColumnRequest& column,
                                             const ColumnStart& start,
                                             ColumnBuffers buffers);

// Reads a column of strings or lists into a field of variable length.
std::unique_ptr<ColumnReader> MakeJaggedReader(std::shared_ptr<const ParquetFile> file,
                                               const ColumnRequest& column,
                                               const ColumnStart& start,
                                               ColumnBuffers buffers);

// Reads a column of lists that all have the requested length, into a field of cells with
// as many items. Another length is an error.
std::unique_ptr<ColumnReader> MakeFixedListReader(std::shared_ptr<const ParquetFile> file,
                                                  const ColumnRequest& column,
                                                  const ColumnStart& start,
                                                  ColumnBuffers buffers);

// Reads the lengths of a column's lists into an int64 field, and no value. Null lists
// have length 0, null elements count.
std::unique_ptr<ColumnReader> MakeListLengthsReader(
    std::shared_ptr<const ParquetFile> file, const ColumnRequest& column,
    const ColumnStart& start, ColumnBuffers buffers);

// Reads a column of lists, the documents, into a field of cells with as many items as a
// sequence: row r of a row group is its packed sequence r. `lists` reads the documents.
// A mask gets the marks of kernels::TokenMark.
std::unique_ptr<ColumnReader> MakePackedReader(
    const std::shared_ptr<const ParquetFile>& file, const ColumnRequest& column,
    const ColumnStart& start, std::unique_ptr<ColumnReader> lists);

}  // namespace torchparquet
