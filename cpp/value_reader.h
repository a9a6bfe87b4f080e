#pragma once

#include <cstdint>
#include <span>
#include <string>

#include "errors.h"
#include "kernels/conversion.h"
#include "kernels/dictionary.h"
#include "kernels/validity.h"

namespace torchparquet {

// Reads the stored values of one data page as bit patterns of the output type, in
// order. There is one class per encoding.
template <typename T>
class ValueReader {
 public:
  virtual ~ValueReader() = default;
  // Both throw Error(kCorruptFile) when the page holds fewer values.
  virtual void Read(T* out, int64_t num_values) = 0;
  virtual void Skip(int64_t num_values) = 0;
};

// PLAIN values of a fixed width.
template <typename Converter>
class PlainReader : public ValueReader<typename Converter::Out> {
 public:
  explicit PlainReader(std::span<const uint8_t> bytes) : bytes_(bytes) {}

  void Read(typename Converter::Out* out, int64_t num_values) override {
    Converter::Convert(Take(num_values), num_values, out);
  }
  void Skip(int64_t num_values) override { Take(num_values); }

 private:
  const uint8_t* Take(int64_t num_values) {
    const auto num_bytes = static_cast<size_t>(num_values * Converter::kStoredBytes);
    if (num_bytes > bytes_.size()) {
      throw CorruptFile("page holds fewer values than its header says");
    }
    const uint8_t* data = bytes_.data();
    bytes_ = bytes_.subspan(num_bytes);
    return data;
  }

  std::span<const uint8_t> bytes_;
};

// PLAIN booleans: one bit each, LSB first.
class PlainBoolReader : public ValueReader<uint8_t> {
 public:
  explicit PlainBoolReader(std::span<const uint8_t> bytes) : bytes_(bytes) {}

  void Read(uint8_t* out, int64_t num_values) override {
    CheckAvailable(num_values);
    kernels::UnpackBits(bytes_.data(), position_, num_values, out);
    position_ += num_values;
  }
  void Skip(int64_t num_values) override {
    CheckAvailable(num_values);
    position_ += num_values;
  }

 private:
  void CheckAvailable(int64_t num_values) const {
    if (position_ + num_values > static_cast<int64_t>(bytes_.size()) * 8) {
      throw CorruptFile("page holds fewer values than its header says");
    }
  }

  std::span<const uint8_t> bytes_;
  int64_t position_ = 0;  // in bits
};

// Indices into the column chunk's dictionary.
template <typename T>
class DictionaryValueReader : public ValueReader<T> {
 public:
  // `bytes` starts at the bit-width byte.
  DictionaryValueReader(std::span<const uint8_t> bytes,
                        const kernels::Dictionary<T>* dictionary)
      : reader_(bytes.empty() ? bytes : bytes.subspan(1),
                bytes.empty() ? 0 : bytes.front(), dictionary) {}

  void Read(T* out, int64_t num_values) override { reader_.Read(out, num_values); }
  void Skip(int64_t num_values) override { reader_.Skip(num_values); }

 private:
  kernels::DictionaryReader<T> reader_;
};

}  // namespace torchparquet
