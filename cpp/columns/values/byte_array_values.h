#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string_view>

#include "kernels/byte_array.h"
#include "kernels/encodings/dictionary.h"
#include "pages/decode_scratch.h"
#include "pages/page_header.h"
#include "pages/page_parts.h"

namespace torchparquet {

// The values of a dictionary page with values of different lengths.
class ByteArrayDictionary {
 public:
  // Keeps its content in the two buffers, which must outlive it.
  ByteArrayDictionary(ScratchBuffer* bytes, ScratchBuffer* entries)
      : bytes_(bytes), entries_(entries) {}

  // Copies the values of a PLAIN page. Throws Error(kCorruptFile) if `bytes` hold fewer.
  void Assign(std::span<const uint8_t> bytes, int64_t num_values);

  // The place of a value in one word: its offset in the upper half, its length in the
  // lower.
  const kernels::Dictionary<uint64_t>* entries() const { return &entries_; }
  const uint8_t* data(uint64_t entry) const { return bytes_->data() + (entry >> 32); }
  static uint32_t length(uint64_t entry) { return static_cast<uint32_t>(entry); }
  std::string_view value(int64_t index) const;
  const uint8_t* readable_end() const { return readable_end_; }

 private:
  ScratchBuffer* bytes_;
  kernels::Dictionary<uint64_t> entries_;
  const uint8_t* readable_end_ = nullptr;
};

// Opens the values of a column chunk's pages as they are stored: strings and other bytes,
// by the class for each page's encoding. All functions throw Error(kCorruptFile) for
// impossible input.
class ByteArrayValues {
 public:
  explicit ByteArrayValues(ColumnBuffers* buffers)
      : dictionary_(&buffers->indices, &buffers->dictionary) {}

  // `bytes` are used within the call only.
  void ReadDictionary(const PageHeader& header, std::span<const uint8_t> bytes);
  // `values` and this must outlive the reader.
  std::unique_ptr<kernels::ByteArrayReader> Open(const PageHeader& header,
                                                 const ValueBytes& values) const;

  const ByteArrayDictionary& dictionary() const { return dictionary_; }

 private:
  ByteArrayDictionary dictionary_;
  bool has_dictionary_ = false;
};

}  // namespace torchparquet
