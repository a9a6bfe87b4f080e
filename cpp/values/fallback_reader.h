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
  int num_values = 0;  // of the page header: nulls count
  int encoding = 0;    // parquet::Encoding::type
};

// Opens a page whose values stand one by one with their lengths, or whose encoding has no
// kernel, which is left to Arrow's own decoder. Values are delivered as they are stored,
// but those of BYTE_ARRAY as 16-byte decimals.
// Throws Error(kCorruptFile) for an encoding that the column's type cannot have. What
// `page` views must outlive the reader.
std::unique_ptr<StoredReader> OpenFallbackReader(
    const EncodedPage& page, const parquet::ColumnDescriptor& descriptor);

}  // namespace torchparquet
