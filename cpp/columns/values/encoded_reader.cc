#include "columns/values/encoded_reader.h"

#include <string>

#include "base/errors.h"
#include "bridge/format.h"
#include "kernels/encodings/byte_stream_split.h"
#include "kernels/encodings/delta_binary_packed.h"
#include "kernels/encodings/delta_byte_array.h"
#include "kernels/encodings/delta_length_byte_array.h"
#include "kernels/encodings/plain_byte_array.h"
#include "kernels/encodings/rle_bool.h"

namespace torchparquet {
namespace {

template <typename T>
class DeltaReader : public StoredReader {
 public:
  explicit DeltaReader(std::span<const uint8_t> bytes) : values_(bytes) {}

  void Read(uint8_t* out, int64_t num_values) override {
    // Outputs and blocks are raw storage, aligned for every number.
    values_.Read(reinterpret_cast<T*>(out), num_values);
  }
  void Skip(int64_t num_values) override { values_.Skip(num_values); }

 private:
  kernels::DeltaBinaryPackedReader<T> values_;
};

class RleBoolStoredReader : public StoredReader {
 public:
  explicit RleBoolStoredReader(std::span<const uint8_t> bytes) : values_(bytes) {}

  void Read(uint8_t* out, int64_t num_values) override { values_.Read(out, num_values); }
  void Skip(int64_t num_values) override { values_.Skip(num_values); }

 private:
  kernels::RleBoolReader values_;
};

class ByteStreamSplitReader : public StoredReader {
 public:
  ByteStreamSplitReader(std::span<const uint8_t> bytes, int64_t value_bytes)
      : bytes_(bytes),
        value_bytes_(value_bytes),
        num_values_(static_cast<int64_t>(bytes.size()) / value_bytes) {
    if (num_values_ * value_bytes != static_cast<int64_t>(bytes.size())) {
      throw CorruptFile(
          "split streams must have equal lengths: " + std::to_string(bytes.size()) +
          " bytes in " + std::to_string(value_bytes) + " streams");
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
    if (num_values > num_values_ - position_) {
      throw CorruptFile("page holds fewer values than its header says");
    }
    const int64_t begin = position_;
    position_ += num_values;
    return begin;
  }

  std::span<const uint8_t> bytes_;
  const int64_t value_bytes_;
  const int64_t num_values_;
  int64_t position_ = 0;
};

}  // namespace

std::unique_ptr<StoredReader> OpenEncodedReader(KernelEncoding encoding,
                                                std::span<const uint8_t> bytes,
                                                int64_t value_bytes) {
  switch (encoding) {
    case KernelEncoding::kDeltaBinaryPacked:
      if (value_bytes == 4) return std::make_unique<DeltaReader<uint32_t>>(bytes);
      return std::make_unique<DeltaReader<uint64_t>>(bytes);
    case KernelEncoding::kByteStreamSplit:
      return std::make_unique<ByteStreamSplitReader>(bytes, value_bytes);
    case KernelEncoding::kRleBool:
      break;
  }
  return std::make_unique<RleBoolStoredReader>(bytes);
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
      throw CorruptFile("binary values cannot have encoding number " +
                        std::to_string(encoding));
  }
}

}  // namespace torchparquet
