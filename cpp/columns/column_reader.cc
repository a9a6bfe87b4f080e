#include "columns/column_reader.h"

#include <utility>

#include "base/errors.h"

namespace torchparquet {
ColumnReader::ColumnReader(std::shared_ptr<const ParquetFile> file,
                           const ColumnRequest& column, const ColumnStart& start,
                           ColumnBuffers buffers)
    : file_(std::move(file)),
      buffers_(std::move(buffers)),
      error_place_{.path = file_->file().path(),
                   .row_group = start.row_group,
                   .column = column.path} {}

void ColumnReader::Read(const RowRange& rows, const ColumnTarget& target,
                        DecodeScratch* scratch, DecodeProgress* progress) {
  try {
    ReadRows(rows, target, scratch, progress);
  } catch (...) {
    throw CurrentErrorAt(error_place_);
  }
}

}  // namespace torchparquet
