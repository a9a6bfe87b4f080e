#include "fallback_reader.h"

#include <parquet/encoding.h>
#include <parquet/schema.h>
#include <parquet/types.h>

#include <algorithm>
#include <cstring>
#include <string>
#include <utility>

#include "errors.h"
#include "kernels/conversion.h"

namespace torchparquet {
namespace {

// Values that a decoder delivers at once, on the stack.
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

// Decodes exactly `num_values` values of at most an int's number.
template <typename Type>
void DecodeExactly(parquet::TypedDecoder<Type>* decoder, typename Type::c_type* out,
                   int64_t num_values) {
  if (decoder->Decode(out, static_cast<int>(num_values)) != num_values) {
    throw CorruptFile("page holds fewer values than its header says");
  }
}

// INT32, INT64, FLOAT and DOUBLE.
template <typename Type, typename Converter>
class NumberReader : public ValueReader<typename Converter::Out> {
 public:
  explicit NumberReader(std::unique_ptr<parquet::TypedDecoder<Type>> decoder)
      : decoder_(std::move(decoder)) {}

  void Read(typename Converter::Out* out, int64_t num_values) override {
    typename Type::c_type block[kBlockValues];
    while (num_values > 0) {
      const int64_t count = std::min(num_values, kBlockValues);
      DecodeExactly<Type>(decoder_.get(), block, count);
      // Converters read stored bytes, which is what a decoder of numbers delivers.
      Converter::Convert(reinterpret_cast<const uint8_t*>(block), count, out);
      out += count;
      num_values -= count;
    }
  }

  void Skip(int64_t num_values) override {
    typename Type::c_type block[kBlockValues];
    while (num_values > 0) {
      const int64_t count = std::min(num_values, kBlockValues);
      DecodeExactly<Type>(decoder_.get(), block, count);
      num_values -= count;
    }
  }

 private:
  std::unique_ptr<parquet::TypedDecoder<Type>> decoder_;
};

// FIXED_LEN_BYTE_ARRAY(2), whose decoder delivers pointers.
class Float16Reader : public ValueReader<uint16_t> {
 public:
  explicit Float16Reader(
      std::unique_ptr<parquet::TypedDecoder<parquet::FLBAType>> decoder)
      : decoder_(std::move(decoder)) {}

  void Read(uint16_t* out, int64_t num_values) override {
    parquet::FixedLenByteArray block[kBlockValues];
    while (num_values > 0) {
      const int64_t count = std::min(num_values, kBlockValues);
      DecodeExactly<parquet::FLBAType>(decoder_.get(), block, count);
      for (int64_t i = 0; i < count; ++i)
        std::memcpy(out + i, block[i].ptr, sizeof(*out));
      out += count;
      num_values -= count;
    }
  }

  void Skip(int64_t num_values) override {
    parquet::FixedLenByteArray block[kBlockValues];
    while (num_values > 0) {
      const int64_t count = std::min(num_values, kBlockValues);
      DecodeExactly<parquet::FLBAType>(decoder_.get(), block, count);
      num_values -= count;
    }
  }

 private:
  std::unique_ptr<parquet::TypedDecoder<parquet::FLBAType>> decoder_;
};

class BoolReader : public ValueReader<uint8_t> {
 public:
  explicit BoolReader(
      std::unique_ptr<parquet::TypedDecoder<parquet::BooleanType>> decoder)
      : decoder_(std::move(decoder)) {}

  void Read(uint8_t* out, int64_t num_values) override {
    static_assert(sizeof(bool) == 1);
    // The decoder stores true and false as the bytes 1 and 0, as torch does.
    DecodeExactly<parquet::BooleanType>(decoder_.get(), reinterpret_cast<bool*>(out),
                                        num_values);
  }

  void Skip(int64_t num_values) override {
    bool block[kBlockValues];
    while (num_values > 0) {
      const int64_t count = std::min(num_values, kBlockValues);
      DecodeExactly<parquet::BooleanType>(decoder_.get(), block, count);
      num_values -= count;
    }
  }

 private:
  std::unique_ptr<parquet::TypedDecoder<parquet::BooleanType>> decoder_;
};

template <typename Type, typename Converter>
std::unique_ptr<ValueReader<typename Converter::Out>> OpenNumbers(
    const EncodedPage& page, const parquet::ColumnDescriptor& descriptor) {
  return std::make_unique<NumberReader<Type, Converter>>(
      OpenDecoder<Type>(page, descriptor));
}

}  // namespace

template <typename Converter>
std::unique_ptr<ValueReader<typename Converter::Out>> OpenFallbackReader(
    const EncodedPage& page, const parquet::ColumnDescriptor& descriptor) {
  const parquet::Type::type physical = descriptor.physical_type();
  if constexpr (Converter::kStoredBytes == 2) {
    return std::make_unique<Float16Reader>(
        OpenDecoder<parquet::FLBAType>(page, descriptor));
  } else if constexpr (Converter::kStoredBytes == 4) {
    if (physical == parquet::Type::FLOAT) {
      return OpenNumbers<parquet::FloatType, Converter>(page, descriptor);
    }
    return OpenNumbers<parquet::Int32Type, Converter>(page, descriptor);
  } else {
    if (physical == parquet::Type::DOUBLE) {
      return OpenNumbers<parquet::DoubleType, Converter>(page, descriptor);
    }
    return OpenNumbers<parquet::Int64Type, Converter>(page, descriptor);
  }
}

std::unique_ptr<ValueReader<uint8_t>> OpenFallbackBoolReader(
    const EncodedPage& page, const parquet::ColumnDescriptor& descriptor) {
  return std::make_unique<BoolReader>(
      OpenDecoder<parquet::BooleanType>(page, descriptor));
}

#define TORCHPARQUET_INSTANTIATE(Converter)                                            \
  template std::unique_ptr<ValueReader<Converter::Out>> OpenFallbackReader<Converter>( \
      const EncodedPage&, const parquet::ColumnDescriptor&)
TORCHPARQUET_INSTANTIATE(kernels::SameBits<uint16_t>);
TORCHPARQUET_INSTANTIATE(kernels::SameBits<uint32_t>);
TORCHPARQUET_INSTANTIATE(kernels::SameBits<uint64_t>);
TORCHPARQUET_INSTANTIATE(kernels::NarrowedInt32<int8_t>);
TORCHPARQUET_INSTANTIATE(kernels::NarrowedInt32<uint8_t>);
TORCHPARQUET_INSTANTIATE(kernels::NarrowedInt32<int16_t>);
TORCHPARQUET_INSTANTIATE(kernels::NarrowedInt32<uint16_t>);
TORCHPARQUET_INSTANTIATE(kernels::WidenedInt32);
#undef TORCHPARQUET_INSTANTIATE

}  // namespace torchparquet
