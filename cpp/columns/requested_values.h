#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "base/errors.h"
#include "columns/column_reader.h"
#include "columns/values/page_values.h"
#include "columns/values/vocabulary.h"

namespace torchparquet {

// The values of the file's leaf number `leaf` as `column` requests them: converted, or
// strings as numbers of a vocabulary. Throws Error(kInvalidArgument) if they cannot
// become that. The file and `buffers` must outlive them.
template <typename Out>
std::unique_ptr<PageValues<Out>> MakeRequestedValues(const ParquetFile& file,
                                                     const ColumnRequest& column,
                                                     int leaf, ColumnBuffers* buffers) {
  const LeafColumn& described = file.leaves()[static_cast<size_t>(leaf)];
  if (described.is_bytes() && column.vocabulary != nullptr) {
    return MakeCodeValues<Out>(column.vocabulary, column.max_page_bytes, buffers);
  }
  const auto conversion =
      described.ConversionTo(column.dtype, column.unit_nanoseconds, column.transform);
  if (!conversion) {
    throw Error(ErrorKind::kInvalidArgument,
                "column of kind " + described.kind + " cannot be read as " +
                    std::string(kernels::DtypeName(column.dtype)));
  }
  // Pages of nulls have no value, of whatever type.
  const auto physical =
      described.holds_nulls() ? PhysicalType::kInt32 : described.physical;
  return MakePageValues<Out>(physical, *conversion, buffers);
}

}  // namespace torchparquet
