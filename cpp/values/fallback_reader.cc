#include "values/fallback_reader.h"

#include <parquet/encoding.h>
#include <parquet/schema.h>
#include <parquet/types.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <string>
#include <utility>

#include "errors.h"
#include "kernels/byte_array.h"
#include "values/encoded_reader.h"

namespace torchparquet {
namespace {

// The number of values that Arrow's decoders deliver at once.
constexpr int64_t kBlockValues = 1024;

// Values of one size, read in blocks by Arrow's decoder.
template <typename Type>
class DecoderReader : public StoredReader {
 public:
  DecoderReader(const EncodedPage& page, const parquet::ColumnDescriptor& descriptor)
      : decoder_(parquet::MakeTypedDecoder<Type>(
            static_cast<parquet::Encoding::type>(page.encoding), &descriptor)) {
    decoder_->SetData(page.num_values, page.bytes.data(),
                      static_cast<int>(page.bytes.size()));
  }

  void Read(uint8_t* out, int64_t num_values) override {
    Decode(num_values, [&](const Value* block, int64_t count) {
      const auto num_bytes = static_cast<size_t>(count) * sizeof(Value);
      std::memcpy(out, block, num_bytes);
      out += num_bytes;
    });
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
};

// Values that each have their length in front, and that have one size once they are
// converted. Our kernels read them, so memory is bounded by the bytes of the page:
// Arrow's decoders of the delta encodings allocate by the counts that a page claims.
class ByteArrayStoredReader : public StoredReader {
 public:
  ByteArrayStoredReader(std::unique_ptr<kernels::ByteArrayReader> values,
                        int64_t max_value_bytes)
      : values_(std::move(values)), max_value_bytes_(max_value_bytes) {}

  void Read(uint8_t* out, int64_t num_values) override {
    while (num_values > 0) {
      const int64_t count = std::min(num_values, kernels::kByteArrayBlock);
      ReadBlock(count);
      out = Store(std::span(lengths_).first(static_cast<size_t>(count)), out);
      num_values -= count;
    }
  }
  void Skip(int64_t num_values) override { values_->Skip(num_values); }

 protected:
  // Writes the values that stand end to end in bytes(), as they are stored. Returns the
  // end of the written values.
  virtual uint8_t* Store(std::span<const uint32_t> lengths, uint8_t* out) = 0;

  std::span<const uint8_t> bytes() const { return sink_.bytes(); }

 private:
  void ReadBlock(int64_t count) {
    sink_.Clear();
    sink_.set_max_bytes(static_cast<size_t>(count * max_value_bytes_));
    try {
      values_->Read(count, lengths_.data(), &sink_);
    } catch (const Error& error) {
      if (error.kind() != ErrorKind::kOutOfMemory) throw;
      throw CorruptFile("value is longer than its type's " +
                        std::to_string(max_value_bytes_) + " bytes");
    }
  }

  std::unique_ptr<kernels::ByteArrayReader> values_;
  const int64_t max_value_bytes_;
  std::array<uint32_t, kernels::kByteArrayBlock> lengths_;
  kernels::ByteSink sink_;
};

class FixedBytesReader : public ByteArrayStoredReader {
 public:
  FixedBytesReader(std::unique_ptr<kernels::ByteArrayReader> values, int64_t type_length)
      : ByteArrayStoredReader(std::move(values), type_length),
        type_length_(type_length) {}

 private:
  uint8_t* Store(std::span<const uint32_t> lengths, uint8_t* out) override {
    for (const uint32_t length : lengths) {
      if (length != type_length_) {
        throw CorruptFile("value must have its type's " + std::to_string(type_length_) +
                          " bytes: " + std::to_string(length));
      }
    }
    return std::copy(bytes().begin(), bytes().end(), out);
  }

  const int64_t type_length_;
};

// Converts two's complement of any length, highest byte first, to 16 bytes, lowest first.
class DecimalReader : public ByteArrayStoredReader {
 public:
  explicit DecimalReader(std::unique_ptr<kernels::ByteArrayReader> values)
      : ByteArrayStoredReader(std::move(values), kBytes) {}

 private:
  static constexpr int64_t kBytes = 16;

  uint8_t* Store(std::span<const uint32_t> lengths, uint8_t* out) override {
    auto value = bytes().begin();
    for (const uint32_t length : lengths) {
      if (length == 0 || length > kBytes) {
        throw CorruptFile("decimal must have 1 to 16 bytes: " + std::to_string(length));
      }
      std::fill_n(out, kBytes, (*value & 0x80) != 0 ? uint8_t{0xFF} : uint8_t{0});
      std::reverse_copy(value, value + length, out);
      value += length;
      out += kBytes;
    }
    return out;
  }
};

std::unique_ptr<kernels::ByteArrayReader> OpenByteArrays(const EncodedPage& page) {
  return OpenByteArrayReader(page.encoding, page.bytes, page.num_values);
}

}  // namespace

std::unique_ptr<StoredReader> OpenFallbackReader(
    const EncodedPage& page, const parquet::ColumnDescriptor& descriptor) {
  switch (descriptor.physical_type()) {
    case parquet::Type::BOOLEAN:
      static_assert(sizeof(bool) == 1);
      return std::make_unique<DecoderReader<parquet::BooleanType>>(page, descriptor);
    case parquet::Type::INT32:
      return std::make_unique<DecoderReader<parquet::Int32Type>>(page, descriptor);
    case parquet::Type::INT64:
      return std::make_unique<DecoderReader<parquet::Int64Type>>(page, descriptor);
    case parquet::Type::FLOAT:
      return std::make_unique<DecoderReader<parquet::FloatType>>(page, descriptor);
    case parquet::Type::DOUBLE:
      return std::make_unique<DecoderReader<parquet::DoubleType>>(page, descriptor);
    case parquet::Type::INT96:
      return std::make_unique<DecoderReader<parquet::Int96Type>>(page, descriptor);
    case parquet::Type::FIXED_LEN_BYTE_ARRAY:
      return std::make_unique<FixedBytesReader>(OpenByteArrays(page),
                                                descriptor.type_length());
    case parquet::Type::BYTE_ARRAY:
      return std::make_unique<DecimalReader>(OpenByteArrays(page));
    default:
      throw CorruptFile("column has an unknown physical type");
  }
}

}  // namespace torchparquet
