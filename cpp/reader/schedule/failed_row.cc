#include "reader/schedule/failed_row.h"

#include <string>

namespace torchparquet {

Error NameRow(const TaskContext& context, const Chunk& chunk, const Error& error) {
  const int64_t row = error.row();
  if (row < 0) return error;
  std::string text = error.what();
  // Other errors name it before their place.
  if (error.kind() == ErrorKind::kCast) {
    text += ", row " + std::to_string(row) + " of its row group";
  }
  if (!context.spec->rows_are_packed) {
    // Ids of chunks of selections are the row group's.
    const int64_t first = chunk.selection < 0 ? chunk.rows.begin : 0;
    text += ", row.id " + std::to_string(chunk.first_row_id + row - first);
  }
  return Error(error.kind(), text).WithRow(row);
}

}  // namespace torchparquet
