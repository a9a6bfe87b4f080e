#pragma once

#include <memory>
#include <string>
#include <utility>

#include "base/errors.h"
#include "columns/column_reader.h"
#include "columns/values/page_values.h"
#include "columns/values/vocabulary.h"
#include "kernels/item_types.h"

namespace torchparquet {

// The readers of each kind of column. OpenColumn chooses one.

// Reads a column without repetition and with values of one size.
std::unique_ptr<ColumnReader> MakeFlatReader(const ColumnRequest& column,
                                             ColumnStart start, ColumnBuffers buffers);

// Reads a column of strings or lists into a field of variable length.
std::unique_ptr<ColumnReader> MakeJaggedReader(const ColumnRequest& column,
                                               ColumnStart start, ColumnBuffers buffers);

// Reads a column of lists that all have the requested length, into a field of cells with
// as many items. Another length is an error.
std::unique_ptr<ColumnReader> MakeFixedListReader(const ColumnRequest& column,
                                                  ColumnStart start,
                                                  ColumnBuffers buffers);

// Reads the lengths of a column's lists into an int64 field, and no value. Null lists
// have length 0, null elements count.
std::unique_ptr<ColumnReader> MakeListLengthsReader(const ColumnRequest& column,
                                                    ColumnStart start,
                                                    ColumnBuffers buffers);

// Reads a column of lists, the documents, into a field of cells with as many items as a
// sequence: row r of a row group is its packed sequence r. `lists` reads the documents.
// A mask gets the marks of kernels::TokenMark.
std::unique_ptr<ColumnReader> MakePackedReader(const ColumnRequest& column,
                                               ColumnStart start,
                                               std::unique_ptr<ColumnReader> lists);

// Makes the reader for the bit pattern of the column's items.
template <template <typename> typename Reader, typename... Arguments>
std::unique_ptr<ColumnReader> MakeForItems(const ColumnRequest& column,
                                           Arguments&&... arguments) {
  const auto make = [&]<typename Out>(Out) -> std::unique_ptr<ColumnReader> {
    return std::make_unique<Reader<Out>>(column, std::forward<Arguments>(arguments)...);
  };
  return kernels::ForItemBytes(kernels::DtypeBytes(column.dtype), make);
}

// The values of a file's leaf as `column` requests them: converted, or strings as numbers
// of a vocabulary. Throws Error(kInvalidArgument) if they cannot become that. `buffers`
// must outlive them.
template <typename Out>
std::unique_ptr<PageValues<Out>> MakeRequestedValues(const ColumnRequest& column,
                                                     const LeafColumn& leaf,
                                                     ColumnBuffers* buffers) {
  if (leaf.is_bytes() && column.vocabulary != nullptr) {
    return MakeCodeValues<Out>(column.vocabulary, column.max_page_bytes, buffers);
  }
  const auto conversion =
      leaf.ConversionTo(column.dtype, column.unit_nanoseconds, column.transform);
  if (!conversion) {
    throw InvalidArgument("column of kind ", leaf.kind, " cannot be read as ",
                          kernels::DtypeName(column.dtype));
  }
  // Pages of nulls have no value, of whatever type.
  const auto physical = leaf.holds_nulls() ? PhysicalType::kInt32 : leaf.physical;
  return MakePageValues<Out>(physical, *conversion, column.cell_items, buffers);
}

}  // namespace torchparquet
