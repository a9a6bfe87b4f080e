#include <algorithm>
#include <array>
#include <string>
#include <utility>

#include "base/errors.h"
#include "columns/values/encoded_reader.h"
#include "kernels/byte_sink.h"

namespace torchparquet {
namespace {

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
        throw CorruptFile("decimal must have up to 16 bytes: " + std::to_string(length));
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

std::unique_ptr<StoredReader> OpenDecimals(
    std::unique_ptr<kernels::ByteArrayReader> values) {
  return std::make_unique<DecimalReader>(std::move(values));
}

std::unique_ptr<StoredReader> OpenFixedBytes(
    std::unique_ptr<kernels::ByteArrayReader> values, int64_t value_bytes) {
  return std::make_unique<FixedBytesReader>(std::move(values), value_bytes);
}

}  // namespace torchparquet
