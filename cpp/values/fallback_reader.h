#pragma once

#include <cstdint>
#include <memory>
#include <span>

#include "values/value_reader.h"

namespace parquet {
class ColumnDescriptor;
}

namespace torchparquet {

// One data page, or the values of a dictionary page.
struct EncodedPage {
  std::span<const uint8_t> bytes;
  int num_values = 0;  // of the page header, including nulls
  int encoding = 0;    // parquet::Encoding::type
};

// Opens a page whose values each have their length in front, or whose encoding has no
// kernel; Arrow's own decoder reads the latter. Delivers values as they are stored,
// except BYTE_ARRAY values, which become 16-byte decimals. Throws Error(kCorruptFile) for
// an encoding that the column's type cannot have. The viewed page must outlive the
// reader.
std::unique_ptr<StoredReader> OpenFallbackReader(
    const EncodedPage& page, const parquet::ColumnDescriptor& descriptor);

}  // namespace torchparquet
