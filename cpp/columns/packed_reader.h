#pragma once

#include <cstdint>
#include <memory>

#include "columns/column_reader.h"

namespace torchparquet {

// The mask of a packed field has these bits of each token.
enum TokenMark : uint8_t {
  kIsToken = 1,  // of a document; else padding
  kIsFirst = 2,  // of a document, or of the part that the sequence has; or of the padding
};

// Reads a column of lists, the documents, into a field of cells with as many items as a
// sequence: row r of a row group is its packed sequence r. `lists` reads the documents.
// A mask gets marks.
std::unique_ptr<ColumnReader> MakePackedReader(
    const std::shared_ptr<const ParquetFile>& file, const ColumnRequest& column,
    const ColumnStart& start, std::unique_ptr<ColumnReader> lists);

}  // namespace torchparquet
