#pragma once

#include <cstdint>
#include <memory>

#include "columns/column_reader.h"
#include "columns/values/page_values.h"

namespace torchparquet {

// Calls `make` with a number of the bit pattern's type of items of that size.
template <typename Make>
auto ForItemBytes(int64_t item_bytes, Make make) {
  switch (item_bytes) {
    case 1:
      return make(uint8_t{});
    case 2:
      return make(uint16_t{});
    case 4:
      return make(uint32_t{});
    default:
      return make(uint64_t{});
  }
}

// The values of the file's leaf number `leaf` as `column` requests them: converted, or
// strings as numbers of a vocabulary. Throws Error(kInvalidArgument) if they cannot
// become that. The file and `buffers` must outlive them.
template <typename Out>
std::unique_ptr<PageValues<Out>> MakeLeafValues(const ParquetFile& file,
                                                const ColumnRequest& column, int leaf,
                                                ColumnBuffers* buffers);

}  // namespace torchparquet
