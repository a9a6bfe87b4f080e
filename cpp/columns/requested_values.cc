#include "columns/requested_values.h"

#include <string>
#include <utility>

#include "base/errors.h"
#include "columns/values/vocabulary.h"

namespace torchparquet {

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

template std::unique_ptr<PageValues<uint8_t>> MakeRequestedValues(const ParquetFile&,
                                                                  const ColumnRequest&,
                                                                  int, ColumnBuffers*);
template std::unique_ptr<PageValues<uint16_t>> MakeRequestedValues(const ParquetFile&,
                                                                   const ColumnRequest&,
                                                                   int, ColumnBuffers*);
template std::unique_ptr<PageValues<uint32_t>> MakeRequestedValues(const ParquetFile&,
                                                                   const ColumnRequest&,
                                                                   int, ColumnBuffers*);
template std::unique_ptr<PageValues<uint64_t>> MakeRequestedValues(const ParquetFile&,
                                                                   const ColumnRequest&,
                                                                   int, ColumnBuffers*);

}  // namespace torchparquet
