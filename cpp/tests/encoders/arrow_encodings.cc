#include "encoders/arrow_encodings.h"

#include <arrow/buffer.h>
#include <parquet/encoding.h>
#include <parquet/exception.h>
#include <parquet/schema.h>
#include <parquet/types.h>

#include <cstring>
#include <memory>

namespace torchparquet::testing {
namespace {

template <typename T>
struct ArrowType;
template <>
struct ArrowType<uint8_t> {
  using Type = parquet::BooleanType;
};
template <>
struct ArrowType<uint32_t> {
  using Type = parquet::Int32Type;
};
template <>
struct ArrowType<uint64_t> {
  using Type = parquet::Int64Type;
};
template <>
struct ArrowType<std::string> {
  using Type = parquet::ByteArrayType;
};

parquet::Encoding::type Named(ArrowEncoding encoding) {
  switch (encoding) {
    case ArrowEncoding::kPlain:
      return parquet::Encoding::PLAIN;
    case ArrowEncoding::kRle:
      return parquet::Encoding::RLE;
    case ArrowEncoding::kDeltaBinaryPacked:
      return parquet::Encoding::DELTA_BINARY_PACKED;
    case ArrowEncoding::kDeltaLengthByteArray:
      return parquet::Encoding::DELTA_LENGTH_BYTE_ARRAY;
    case ArrowEncoding::kDeltaByteArray:
      return parquet::Encoding::DELTA_BYTE_ARRAY;
    case ArrowEncoding::kByteStreamSplit:
      return parquet::Encoding::BYTE_STREAM_SPLIT;
  }
  throw parquet::ParquetException("no such encoding");
}

parquet::ColumnDescriptor Describe(parquet::Type::type type, int width = -1) {
  const auto node = parquet::schema::PrimitiveNode::Make(
      "values", parquet::Repetition::REQUIRED, type, parquet::ConvertedType::NONE, width);
  return {node, /*max_definition_level=*/0, /*max_repetition_level=*/0};
}

std::vector<uint8_t> Flush(parquet::Encoder* encoder) {
  const std::shared_ptr<arrow::Buffer> bytes = encoder->FlushValues();
  return {bytes->data(), bytes->data() + bytes->size()};
}

}  // namespace

template <typename T>
std::vector<uint8_t> ArrowEncode(ArrowEncoding encoding, const std::vector<T>& values) {
  using Type = typename ArrowType<T>::Type;
  const parquet::ColumnDescriptor descriptor = Describe(Type::type_num);
  const auto encoder = parquet::MakeTypedEncoder<Type>(
      Named(encoding), /*use_dictionary=*/false, &descriptor);
  const auto stored = std::make_unique<typename Type::c_type[]>(values.size());
  for (size_t i = 0; i < values.size(); ++i) {
    if constexpr (std::is_same_v<T, std::string>) {
      stored[i] = parquet::ByteArray(values[i]);
    } else {
      stored[i] = static_cast<typename Type::c_type>(values[i]);
    }
  }
  encoder->Put(stored.get(), static_cast<int>(values.size()));
  return Flush(encoder.get());
}

template <typename T>
std::vector<T> ArrowDecode(ArrowEncoding encoding, std::span<const uint8_t> bytes,
                           int64_t num_values) {
  using Type = typename ArrowType<T>::Type;
  const parquet::ColumnDescriptor descriptor = Describe(Type::type_num);
  const auto decoder = parquet::MakeTypedDecoder<Type>(Named(encoding), &descriptor);
  decoder->SetData(static_cast<int>(num_values), bytes.data(),
                   static_cast<int>(bytes.size()));
  const auto count = static_cast<size_t>(num_values);
  const auto stored = std::make_unique<typename Type::c_type[]>(count);
  const int decoded = decoder->Decode(stored.get(), static_cast<int>(num_values));
  std::vector<T> values;
  for (size_t i = 0; i < static_cast<size_t>(decoded); ++i) {
    if constexpr (std::is_same_v<T, std::string>) {
      values.emplace_back(std::string_view(stored[i]));
    } else {
      values.push_back(static_cast<T>(stored[i]));
    }
  }
  return values;
}

std::vector<uint8_t> ArrowEncodeFixed(ArrowEncoding encoding, int width,
                                      const std::vector<uint8_t>& values) {
  using Type = parquet::FLBAType;
  const parquet::ColumnDescriptor descriptor = Describe(Type::type_num, width);
  const auto encoder = parquet::MakeTypedEncoder<Type>(
      Named(encoding), /*use_dictionary=*/false, &descriptor);
  std::vector<parquet::FixedLenByteArray> stored;
  for (size_t i = 0; i < values.size(); i += static_cast<size_t>(width)) {
    stored.emplace_back(values.data() + i);
  }
  encoder->Put(stored.data(), static_cast<int>(stored.size()));
  return Flush(encoder.get());
}

#define TORCHPARQUET_INSTANTIATE(T)                                                   \
  template std::vector<uint8_t> ArrowEncode<T>(ArrowEncoding, const std::vector<T>&); \
  template std::vector<T> ArrowDecode<T>(ArrowEncoding, std::span<const uint8_t>, int64_t)
TORCHPARQUET_INSTANTIATE(uint8_t);
TORCHPARQUET_INSTANTIATE(uint32_t);
TORCHPARQUET_INSTANTIATE(uint64_t);
TORCHPARQUET_INSTANTIATE(std::string);
#undef TORCHPARQUET_INSTANTIATE

}  // namespace torchparquet::testing
