#include "columns/values/byte_array_values.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <string>

#include "base/errors.h"
#include "bridge/format.h"
#include "columns/values/encoded_reader.h"
#include "columns/values/file_values.h"
#include "columns/values/page_values.h"
#include "kernels/levels/selected.h"

namespace torchparquet {
namespace {

using kernels::ByteSink;

// Indices into a dictionary.
class DictionaryByteArrayReader : public kernels::ByteArrayReader {
 public:
  // `bytes` starts at the bit-width byte.
  DictionaryByteArrayReader(std::span<const uint8_t> bytes,
                            const ByteArrayDictionary* dictionary)
      : entries_(bytes.empty() ? bytes : bytes.subspan(1),
                 bytes.empty() ? 0 : bytes.front(), dictionary->entries()),
        dictionary_(dictionary) {}

  void Read(int64_t num_values, uint32_t* lengths, ByteSink* sink) override {
    std::array<uint64_t, kernels::kByteArrayBlock> block;
    while (num_values > 0) {
      const int64_t count = std::min(num_values, kernels::kByteArrayBlock);
      entries_.Read(block.data(), count);
      Copy({block.data(), static_cast<size_t>(count)}, lengths, sink);
      lengths += count;
      num_values -= count;
    }
  }
  void Skip(int64_t num_values) override { entries_.Skip(num_values); }
  bool PickOnes(const uint64_t* bits, int64_t begin, int64_t end, uint32_t* lengths,
                ByteSink* sink) override {
    std::array<uint64_t, kernels::kByteArrayBlock> block;
    while (begin < end) {
      const int64_t stop = std::min(end, begin + kernels::kByteArrayBlock);
      const auto count = static_cast<size_t>(kernels::CountOnes(bits, begin, stop));
      entries_.PickOnes(block.data(), bits, begin, stop);
      Copy({block.data(), count}, lengths, sink);
      lengths += count;
      begin = stop;
    }
    return true;
  }

 private:
  void Copy(std::span<const uint64_t> entries, uint32_t* lengths, ByteSink* sink) const {
    size_t num_bytes = 0;
    for (size_t i = 0; i < entries.size(); ++i) {
      lengths[i] = ByteArrayDictionary::length(entries[i]);
      num_bytes += lengths[i];
    }
    uint8_t* out = sink->Extend(num_bytes);
    for (size_t i = 0; i < entries.size(); ++i) {
      kernels::CopyBytes(dictionary_->data(entries[i]), dictionary_->readable_end(),
                         lengths[i], out);
      out += lengths[i];
    }
  }

  kernels::DictionaryReader<uint64_t> entries_;
  const ByteArrayDictionary* dictionary_;
};

// The values of a page of nulls.
class NoByteArrays : public kernels::ByteArrayReader {
 public:
  void Read(int64_t num_values, uint32_t*, ByteSink*) override { Skip(num_values); }
  void Skip(int64_t num_values) override {
    if (num_values > 0) throw TooFewValues();
  }
};

}  // namespace

void ByteArrayDictionary::Assign(std::span<const uint8_t> bytes, int64_t num_values) {
  constexpr size_t kLengthBytes = sizeof(uint32_t);
  if (num_values * static_cast<int64_t>(kLengthBytes) >
      static_cast<int64_t>(bytes.size())) {
    throw CorruptFile("dictionary page is too short for its ", num_values, " values");
  }
  // With slack, so that every value can be copied by copies of fixed size.
  const size_t num_bytes = bytes.size() + ByteSink::kSlackBytes;
  uint8_t* copy = bytes_->Reserve(num_bytes);
  // The dictionary of a column chunk of nulls may have no bytes, and so no address.
  if (!bytes.empty()) std::memcpy(copy, bytes.data(), bytes.size());
  std::memset(copy + bytes.size(), 0, ByteSink::kSlackBytes);
  readable_end_ = copy + num_bytes;
  entries_.Resize(num_values);
  size_t offset = 0;
  for (uint64_t& entry : entries_.values()) {
    uint32_t length = 0;
    if (bytes.size() - offset >= kLengthBytes)
      std::memcpy(&length, copy + offset, kLengthBytes);
    if (kLengthBytes + length > bytes.size() - offset) {
      throw CorruptFile("length of a dictionary's value goes beyond its page: ", length);
    }
    offset += kLengthBytes;
    entry = static_cast<uint64_t>(offset) << 32 | length;
    offset += length;
  }
}

std::string_view ByteArrayDictionary::value(int64_t index) const {
  const uint64_t entry = entries_.data()[index];
  // Bytes are read as characters.
  return {reinterpret_cast<const char*>(data(entry)), length(entry)};
}

void ByteArrayValues::ReadDictionary(const PageHeader& header,
                                     std::span<const uint8_t> bytes) {
  CheckDictionaryHeader(header, has_dictionary_);
  has_dictionary_ = true;
  dictionary_.Assign(bytes, header.num_values);
}

std::unique_ptr<kernels::ByteArrayReader> ByteArrayValues::Open(
    const PageHeader& header, const ValueBytes& values) const {
  if (values.file() != nullptr) return OpenFileByteArrays(values);
  const std::span<const uint8_t> bytes = values.bytes();
  if (bytes.empty()) return std::make_unique<NoByteArrays>();
  if (header.encoding == Encoding::kPlainDictionary ||
      header.encoding == Encoding::kRleDictionary) {
    return std::make_unique<DictionaryByteArrayReader>(bytes, &dictionary_);
  }
  return OpenByteArrayReader(header.encoding, bytes, header.num_values);
}

}  // namespace torchparquet
