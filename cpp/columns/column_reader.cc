#include "columns/column_reader.h"

#include <utility>

#include "base/errors.h"

namespace torchparquet {

ColumnReader::ColumnReader(const ColumnRequest& column, ColumnStart start,
                           ColumnBuffers buffers)
    : start_(std::move(start)), buffers_(std::move(buffers)) {
  if (start_.file == nullptr) return;
  error_place_ = {
      .path = file().file().path(), .row_group = start_.row_group, .column = column.path};
}

void ColumnReader::Read(const RowRange& rows, const ColumnTarget& target,
                        DecodeScratch* scratch, DecodeProgress* progress) {
  try {
    ReadRows(rows, target, scratch, progress);
  } catch (...) {
    throw CurrentErrorAt(error_place_);
  }
}

}  // namespace torchparquet
