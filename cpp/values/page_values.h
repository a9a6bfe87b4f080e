#pragma once

#include <cstdint>
#include <memory>
#include <span>

#include "kernels/values/conversion.h"
#include "pages/page_header.h"
#include "scratch.h"
#include "values/value_reader.h"

namespace parquet {
class ColumnDescriptor;
}

namespace torchparquet {

// The values of a column chunk's pages as bit patterns of the output type, each page's
// by the class for its encoding. All throw Error(kCorruptFile) for what cannot be.
template <typename Out>
class PageValues {
 public:
  virtual ~PageValues() = default;
  // `bytes` are needed within the call only.
  virtual void ReadDictionary(const PageHeader& header,
                              std::span<const uint8_t> bytes) = 0;
  // `bytes` and this must outlive the reader.
  virtual std::unique_ptr<ValueReader<Out>> Open(const PageHeader& header,
                                                 std::span<const uint8_t> bytes) = 0;
};

// Throws Error(kCorruptFile) for a dictionary that is the column chunk's second or is
// encoded in a way in which dictionaries cannot be.
void CheckDictionaryHeader(const PageHeader& header, bool has_dictionary);

// Values that are all stored in the same number of bytes. `Out` is the bit pattern of
// what `conversion` leads to: uint8_t, uint16_t, uint32_t or uint64_t. `descriptor` and
// `buffers` must outlive the values.
template <typename Out>
std::unique_ptr<PageValues<Out>> MakePageValues(
    const parquet::ColumnDescriptor& descriptor, const kernels::Conversion& conversion,
    ColumnBuffers* buffers);

}  // namespace torchparquet
