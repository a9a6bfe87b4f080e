#include "batches/column_target.h"

#include <string>

namespace torchparquet {

Error NullError(int64_t row) {
  return Error(ErrorKind::kNullValue,
               "null value, row " + std::to_string(row) + " of its row group")
      .WithRow(row);
}

}  // namespace torchparquet
