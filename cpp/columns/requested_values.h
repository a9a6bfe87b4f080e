#pragma once

#include <cstdint>
#include <memory>

#include "columns/column_reader.h"
#include "columns/values/page_values.h"

namespace torchparquet {

// The values of the file's leaf number `leaf` as `column` requests them: converted, or
// strings as numbers of a vocabulary. Throws Error(kInvalidArgument) if they cannot
// become that. The file and `buffers` must outlive them.
template <typename Out>
std::unique_ptr<PageValues<Out>> MakeRequestedValues(const ParquetFile& file,
                                                     const ColumnRequest& column,
                                                     int leaf, ColumnBuffers* buffers);

}  // namespace torchparquet
