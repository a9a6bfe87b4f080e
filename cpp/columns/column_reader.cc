#include "columns/column_reader.h"

#include <parquet/exception.h>

#include <utility>

#include "errors.h"

namespace torchparquet {
namespace {

// True if the exception in flight is Arrow's for a failed allocation.
bool CurrentIsOutOfMemory() {
  try {
    throw;
  } catch (const parquet::ParquetStatusException& error) {
    return error.status().IsOutOfMemory();
  } catch (...) {
    return false;
  }
}

}  // namespace

Error ErrorOfColumn(const ErrorPlace& place) {
  if (CurrentIsOutOfMemory()) {
    return Error(ErrorKind::kOutOfMemory, "out of memory while reading", place);
  }
  return CurrentErrorAt(place);
}

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
    throw ErrorOfColumn(error_place_);
  }
}

}  // namespace torchparquet
