#pragma once

#include <cstdint>
#include <memory>
#include <span>

#include "bridge/format.h"
#include "columns/values/value_reader.h"
#include "kernels/values/conversion.h"
#include "pages/decode_scratch.h"
#include "pages/page_header.h"
#include "pages/page_parts.h"

namespace torchparquet {

// The values of a column chunk's pages as bit patterns of the output type, by the class
// for each page's encoding. All functions throw Error(kCorruptFile) for impossible input.
template <typename Out>
class PageValues {
 public:
  virtual ~PageValues() = default;
  // `bytes` are used within the call only.
  virtual void ReadDictionary(const PageHeader& header,
                              std::span<const uint8_t> bytes) = 0;
  // `values` and this must outlive the reader.
  virtual std::unique_ptr<ValueReader<Out>> Open(const PageHeader& header,
                                                 const ValueBytes& values) = 0;
};

// Throws Error(kCorruptFile) for a second dictionary of the column chunk, or for an
// encoding that dictionaries cannot have.
void CheckDictionaryHeader(const PageHeader& header, bool has_dictionary);

// Values stored in one size. `Out` is the bit pattern that `conversion` leads to:
// uint8_t, uint16_t, uint32_t or uint64_t. `buffers` must outlive the values.
template <typename Out>
std::unique_ptr<PageValues<Out>> MakePageValues(PhysicalType physical,
                                                const kernels::Conversion& conversion,
                                                ColumnBuffers* buffers);

}  // namespace torchparquet
