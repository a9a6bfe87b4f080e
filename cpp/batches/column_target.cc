#include "batches/column_target.h"

#include <string>

namespace torchparquet {

Error NullError(int64_t row) {
  const Error error(
      ErrorKind::kNullValue,
      "null value where nulls='error'; read the column with Column(..., nulls=VALUE) to "
      "fill, nulls='nan' for floats, nulls='empty' for strings and lists of them, or "
      "nulls='mask' for a mask; row " +
          std::to_string(row) + " of its row group");
  return error.WithRow(row);
}

}  // namespace torchparquet
