#pragma once

#include <cstdint>
#include <memory>
#include <span>

#include "value_reader.h"

namespace parquet {
class ColumnDescriptor;
}

namespace torchparquet {

// One data page for Arrow's decoder.
struct EncodedPage {
  std::span<const uint8_t> bytes;
  int num_values = 0;  // of the page header: nulls count
  int encoding = 0;    // parquet::Encoding::type
};

// Opens a page whose encoding has no kernel here by Arrow's own decoder for it. Values
// are delivered as they are stored, but those of BYTE_ARRAY as 16-byte decimals.
// Throws Error(kCorruptFile) for an encoding that the column's type cannot have. What
// `page` views must outlive the reader.
std::unique_ptr<StoredReader> OpenFallbackReader(
    const EncodedPage& page, const parquet::ColumnDescriptor& descriptor);

}  // namespace torchparquet
