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

// Opens a page whose encoding has no kernel here by Arrow's own decoder for it.
// Throws Error(kCorruptFile) for an encoding that the column's type cannot have.
// `Converter` is one of kernels/conversion.h; what `page` views must outlive the reader.
template <typename Converter>
std::unique_ptr<ValueReader<typename Converter::Out>> OpenFallbackReader(
    const EncodedPage& page, const parquet::ColumnDescriptor& descriptor);

// The same for BOOLEAN columns.
std::unique_ptr<ValueReader<uint8_t>> OpenFallbackBoolReader(
    const EncodedPage& page, const parquet::ColumnDescriptor& descriptor);

}  // namespace torchparquet
