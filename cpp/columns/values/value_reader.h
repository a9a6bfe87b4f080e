#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstring>
#include <memory>
#include <span>
#include <utility>

#include "base/errors.h"
#include "kernels/bit_unpack.h"
#include "kernels/encodings/dictionary.h"
#include "kernels/levels/selected.h"
#include "kernels/streaming_stores.h"
#include "kernels/values/conversion.h"

namespace torchparquet {

// Reads the values of one data page as bit patterns of the output type, in order. Each
// encoding has one class.
template <typename T>
class ValueReader {
 public:
  virtual ~ValueReader() = default;
  // Both throw Error(kCorruptFile) if the page holds fewer values. Error(kCast) tells
  // which value of a Read does not fit.
  virtual void Read(T* out, int64_t num_values) = 0;
  virtual void Skip(int64_t num_values) = 0;
  // True if PickOnes reads single values without those between them.
  virtual bool can_pick() const { return false; }
  // Passes over end - begin values and writes those whose bit is set: `begin` is the next
  // value's. Only if can_pick().
  virtual void PickOnes(T*, const kernels::BitWord*, int64_t, int64_t) {
    throw Error(ErrorKind::kInternal, "the encoding's values cannot be picked");
  }
  // As Read, by streaming stores. Call kernels::EndStreamingStores afterwards.
  virtual void ReadStreaming(T* out, int64_t num_values) { Read(out, num_values); }
  // True if Read may throw for a value that the output type cannot hold.
  virtual bool may_refuse() const { return false; }
};

// Reads values as they are stored: for each value the bytes that a conversion takes. The
// output of Read is aligned for numbers of that size.
using StoredReader = ValueReader<uint8_t>;

// PLAIN values of a fixed width.
template <typename T>
class PlainReader : public ValueReader<T> {
 public:
  PlainReader(std::span<const uint8_t> bytes, const kernels::Conversion& conversion)
      : bytes_(bytes), conversion_(conversion) {}

  void Read(T* out, int64_t num_values) override {
    conversion_.Convert(Take(num_values), num_values, reinterpret_cast<uint8_t*>(out));
  }
  void Skip(int64_t num_values) override { Take(num_values); }
  void ReadStreaming(T* out, int64_t num_values) override {
    if (!conversion_.is_copy()) return Read(out, num_values);
    kernels::StreamCopy(Take(num_values), num_values * conversion_.stored_bytes(),
                        reinterpret_cast<uint8_t*>(out));
  }
  bool may_refuse() const override { return conversion_.may_refuse(); }
  bool can_pick() const override {
    return conversion_.is_copy() && conversion_.stored_bytes() == sizeof(T);
  }
  void PickOnes(T* out, const kernels::BitWord* bits, int64_t begin,
                int64_t end) override {
    const uint8_t* data = Take(end - begin);
    kernels::ForOnes(bits, begin, end, [&](int64_t one) {
      std::memcpy(out++, data + (one - begin) * static_cast<int64_t>(sizeof(T)),
                  sizeof(T));
    });
  }

 private:
  const uint8_t* Take(int64_t num_values) {
    const auto num_bytes = static_cast<size_t>(num_values * conversion_.stored_bytes());
    if (num_bytes > bytes_.size()) throw TooFewValues();
    const uint8_t* data = bytes_.data();
    bytes_ = bytes_.subspan(num_bytes);
    return data;
  }

  std::span<const uint8_t> bytes_;
  const kernels::Conversion conversion_;
};

// PLAIN booleans: one bit each, LSB first.
class PlainBoolReader : public StoredReader {
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
      throw TooFewValues();
    }
  }

  std::span<const uint8_t> bytes_;
  int64_t position_ = 0;  // in bits
};

// Converts the values of another reader, block by block in the L1 cache.
template <typename T>
class ConvertingReader : public ValueReader<T> {
 public:
  ConvertingReader(std::unique_ptr<StoredReader> stored,
                   const kernels::Conversion& conversion)
      : stored_(std::move(stored)), conversion_(conversion) {}

  void Read(T* out, int64_t num_values) override {
    // The output is raw storage for bit patterns.
    auto* bytes = reinterpret_cast<uint8_t*>(out);
    if (conversion_.is_copy()) return stored_->Read(bytes, num_values);
    alignas(kBlockAlignment) std::array<uint8_t, 8192> block;
    const int64_t block_values =
        static_cast<int64_t>(block.size()) / conversion_.stored_bytes();
    int64_t done = 0;
    ReadParts(done, [&] {
      while (done < num_values) {
        const int64_t count = std::min(num_values - done, block_values);
        stored_->Read(block.data(), count);
        conversion_.Convert(block.data(), count, bytes);
        bytes += count * conversion_.out_bytes();
        done += count;
      }
    });
  }
  void Skip(int64_t num_values) override { stored_->Skip(num_values); }
  void ReadStreaming(T* out, int64_t num_values) override {
    if (!conversion_.is_copy()) return Read(out, num_values);
    stored_->ReadStreaming(reinterpret_cast<uint8_t*>(out), num_values);
  }
  bool may_refuse() const override { return conversion_.may_refuse(); }

 private:
  static constexpr size_t kBlockAlignment = 16;

  std::unique_ptr<StoredReader> stored_;
  const kernels::Conversion conversion_;
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
  bool can_pick() const override { return true; }
  void PickOnes(T* out, const kernels::BitWord* bits, int64_t begin,
                int64_t end) override {
    reader_.PickOnes(out, bits, begin, end);
  }
  void ReadStreaming(T* out, int64_t num_values) override {
    reader_.Read(out, num_values, kernels::Stores::kStreaming);
  }

 private:
  kernels::DictionaryReader<T> reader_;
};

}  // namespace torchparquet
