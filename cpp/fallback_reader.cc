#include "fallback_reader.h"

#include <parquet/encoding.h>
#include <parquet/schema.h>
#include <parquet/types.h>

#include <algorithm>
#include <cstring>
#include <string>
#include <utility>

#include "errors.h"

namespace torchparquet {
namespace {

// Values that a decoder delivers at once where they cannot go straight to the output.
constexpr int64_t kBlockValues = 1024;

template <typename Type>
std::unique_ptr<parquet::TypedDecoder<Type>> OpenDecoder(
    const EncodedPage& page, const parquet::ColumnDescriptor& descriptor) {
  auto decoder = parquet::MakeTypedDecoder<Type>(
      static_cast<parquet::Encoding::type>(page.encoding), &descriptor);
  decoder->SetData(page.num_values, page.bytes.data(),
                   static_cast<int>(page.bytes.size()));
  return decoder;
}

// What is common to all types: a decoder, of which blocks are taken. `Store` turns a
// block of what it delivers into stored bytes.
template <typename Type, typename Store>
class DecoderReader : public StoredReader {
 public:
  DecoderReader(std::unique_ptr<parquet::TypedDecoder<Type>> decoder, Store store)
      : decoder_(std::move(decoder)), store_(store) {}

  void Read(uint8_t* out, int64_t num_values) override {
    Decode(num_values,
           [&](const Value* block, int64_t count) { out = store_(block, count, out); });
  }
  void Skip(int64_t num_values) override {
    Decode(num_values, [](const Value*, int64_t) {});
  }

 private:
  using Value = typename Type::c_type;

  template <typename OnBlock>
  void Decode(int64_t num_values, OnBlock on_block) {
    Value block[kBlockValues];
    while (num_values > 0) {
      const int64_t count = std::min(num_values, kBlockValues);
      if (decoder_->Decode(block, static_cast<int>(count)) != count) {
        throw CorruptFile("page holds fewer values than its header says");
      }
      on_block(block, count);
      num_values -= count;
    }
  }

  std::unique_ptr<parquet::TypedDecoder<Type>> decoder_;
  const Store store_;
};

template <typename Type, typename Store>
std::unique_ptr<StoredReader> Open(const EncodedPage& page,
                                   const parquet::ColumnDescriptor& descriptor,
                                   Store store) {
  return std::make_unique<DecoderReader<Type, Store>>(OpenDecoder<Type>(page, descriptor),
                                                      store);
}

// Numbers and, since its bytes are 0 and 1, bool.
struct StoreValues {
  template <typename Value>
  uint8_t* operator()(const Value* block, int64_t count, uint8_t* out) const {
    const auto num_bytes = static_cast<size_t>(count) * sizeof(Value);
    std::memcpy(out, block, num_bytes);
    return out + num_bytes;
  }
};

struct StoreFixedBytes {
  size_t type_length;

  uint8_t* operator()(const parquet::FixedLenByteArray* block, int64_t count,
                      uint8_t* out) const {
    for (int64_t i = 0; i < count; ++i, out += type_length) {
      std::memcpy(out, block[i].ptr, type_length);
    }
    return out;
  }
};

// Two's complement of any length, the highest byte first, as 16 bytes, the lowest
// first.
struct StoreDecimals {
  uint8_t* operator()(const parquet::ByteArray* block, int64_t count,
                      uint8_t* out) const {
    for (int64_t i = 0; i < count; ++i, out += 16) {
      const parquet::ByteArray& value = block[i];
      if (value.len == 0 || value.len > 16) {
        throw CorruptFile("decimal must have 1 to 16 bytes: " +
                          std::to_string(value.len));
      }
      const int sign = (value.ptr[0] & 0x80) != 0 ? 0xFF : 0;
      std::memset(out, sign, 16);
      std::reverse_copy(value.ptr, value.ptr + value.len, out);
    }
    return out;
  }
};

}  // namespace

std::unique_ptr<StoredReader> OpenFallbackReader(
    const EncodedPage& page, const parquet::ColumnDescriptor& descriptor) {
  switch (descriptor.physical_type()) {
    case parquet::Type::BOOLEAN:
      static_assert(sizeof(bool) == 1);
      return Open<parquet::BooleanType>(page, descriptor, StoreValues());
    case parquet::Type::INT32:
      return Open<parquet::Int32Type>(page, descriptor, StoreValues());
    case parquet::Type::INT64:
      return Open<parquet::Int64Type>(page, descriptor, StoreValues());
    case parquet::Type::FLOAT:
      return Open<parquet::FloatType>(page, descriptor, StoreValues());
    case parquet::Type::DOUBLE:
      return Open<parquet::DoubleType>(page, descriptor, StoreValues());
    case parquet::Type::INT96:
      return Open<parquet::Int96Type>(page, descriptor, StoreValues());
    case parquet::Type::FIXED_LEN_BYTE_ARRAY:
      return Open<parquet::FLBAType>(
          page, descriptor,
          StoreFixedBytes{static_cast<size_t>(descriptor.type_length())});
    case parquet::Type::BYTE_ARRAY:
      return Open<parquet::ByteArrayType>(page, descriptor, StoreDecimals());
    default:
      throw CorruptFile("column has an unknown physical type");
  }
}

}  // namespace torchparquet
