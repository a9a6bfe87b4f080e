#include "columns/values/encoded_reader.h"

#include <algorithm>
#include <array>
#include <string>
#include <utility>

#include "base/errors.h"
#include "kernels/byte_sink.h"
#include "kernels/encodings/byte_arrays.h"
#include "kernels/encodings/byte_stream_split.h"
#include "kernels/encodings/delta_binary_packed.h"
#include "kernels/encodings/rle_bool.h"

namespace torchparquet {
namespace {

// The values of a kernel that writes numbers of type T.
template <typename Kernel, typename T>
class KernelReader : public StoredReader {
 public:
  explicit KernelReader(std::span<const uint8_t> bytes) : values_(bytes) {}

  void Read(uint8_t* out, int64_t num_values) override {
    // Outputs and blocks are raw storage, aligned for every number.
    values_.Read(reinterpret_cast<T*>(out), num_values);
  }
  void Skip(int64_t num_values) override { values_.Skip(num_values); }

 private:
  Kernel values_;
};

template <typename T>
using DeltaReader = KernelReader<kernels::DeltaBinaryPackedReader<T>, T>;

class ByteStreamSplitReader : public StoredReader {
 public:
  ByteStreamSplitReader(std::span<const uint8_t> bytes, int64_t value_bytes)
      : bytes_(bytes),
        value_bytes_(value_bytes),
        num_values_(static_cast<int64_t>(bytes.size()) / value_bytes) {
    if (num_values_ * value_bytes != static_cast<int64_t>(bytes.size())) {
      throw CorruptFile("split streams must have equal lengths: ", bytes.size(),
                        " bytes in ", value_bytes, " streams");
    }
  }

  void Read(uint8_t* out, int64_t num_values) override {
    const int64_t begin = Take(num_values);
    kernels::DecodeByteStreamSplit({.first = bytes_.data() + begin,
                                    .stride = num_values_,
                                    .width = static_cast<int>(value_bytes_)},
                                   num_values, out);
  }
  void Skip(int64_t num_values) override { Take(num_values); }
  void ReadStreaming(uint8_t* out, int64_t num_values) override {
    kernels::StreamByBlocks(value_bytes_, num_values, out,
                            [&](uint8_t* block, int64_t count) { Read(block, count); });
  }

 private:
  int64_t Take(int64_t num_values) {
    if (num_values > num_values_ - position_) throw TooFewValues();
    const int64_t begin = position_;
    position_ += num_values;
    return begin;
  }

  std::span<const uint8_t> bytes_;
  const int64_t value_bytes_;
  const int64_t num_values_;
  int64_t position_ = 0;
};

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
      if (error.kind() != ErrorKind::kValuesTooLarge) throw;
      throw CorruptFile("value is longer than its type's ", max_value_bytes_, " bytes");
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
        throw CorruptFile("value must have its type's ", type_length_,
                          " bytes: ", length);
      }
    }
    return std::copy(bytes().begin(), bytes().end(), out);
  }

  const int64_t type_length_;
};

// Converts two's complement of any length, highest byte first, to 16 bytes, lowest first.
// No bytes are 0.
class DecimalReader : public ByteArrayStoredReader {
 public:
  explicit DecimalReader(std::unique_ptr<kernels::ByteArrayReader> values)
      : ByteArrayStoredReader(std::move(values), kBytes) {}

 private:
  static constexpr int64_t kBytes = 16;

  uint8_t* Store(std::span<const uint32_t> lengths, uint8_t* out) override {
    auto value = bytes().begin();
    for (const uint32_t length : lengths) {
      if (length > kBytes) {
        throw CorruptFile("decimal must have up to 16 bytes: ", length);
      }
      const bool is_negative = length > 0 && (*value & 0x80) != 0;
      std::fill_n(out, kBytes, is_negative ? uint8_t{0xFF} : uint8_t{0});
      std::reverse_copy(value, value + length, out);
      value += length;
      out += kBytes;
    }
    return out;
  }
};

}  // namespace

std::unique_ptr<StoredReader> OpenNumberReader(PhysicalType physical, int encoding,
                                               std::span<const uint8_t> bytes,
                                               int64_t value_bytes) {
  const bool is_integer =
      physical == PhysicalType::kInt32 || physical == PhysicalType::kInt64;
  switch (encoding) {
    case Encoding::kDeltaBinaryPacked:
      if (!is_integer) return nullptr;
      if (value_bytes == 4) return std::make_unique<DeltaReader<uint32_t>>(bytes);
      return std::make_unique<DeltaReader<uint64_t>>(bytes);
    case Encoding::kByteStreamSplit:
      if (!is_integer && physical != PhysicalType::kFloat &&
          physical != PhysicalType::kDouble && physical != PhysicalType::kFixedBytes) {
        return nullptr;
      }
      return std::make_unique<ByteStreamSplitReader>(bytes, value_bytes);
    case Encoding::kRle:
      if (physical != PhysicalType::kBoolean) return nullptr;
      return std::make_unique<KernelReader<kernels::RleBoolReader, uint8_t>>(bytes);
    default:
      return nullptr;
  }
}

std::unique_ptr<kernels::ByteArrayReader> OpenByteArrayReader(
    int encoding, std::span<const uint8_t> bytes, int64_t num_values) {
  switch (encoding) {
    case Encoding::kPlain:
      return std::make_unique<kernels::PlainByteArrayReader>(bytes);
    case Encoding::kDeltaLengthByteArray:
      return std::make_unique<kernels::DeltaLengthByteArrayReader>(bytes, num_values);
    case Encoding::kDeltaByteArray:
      return std::make_unique<kernels::DeltaByteArrayReader>(bytes, num_values);
    default:
      throw CorruptFile("binary values cannot have encoding number ", encoding);
  }
}

std::unique_ptr<StoredReader> OpenDecimals(
    std::unique_ptr<kernels::ByteArrayReader> values) {
  return std::make_unique<DecimalReader>(std::move(values));
}

std::unique_ptr<StoredReader> OpenFixedBytes(
    std::unique_ptr<kernels::ByteArrayReader> values, int64_t value_bytes) {
  return std::make_unique<FixedBytesReader>(std::move(values), value_bytes);
}

}  // namespace torchparquet
