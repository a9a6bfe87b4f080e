#include "columns/values/encoded_reader.h"

#include <string>

#include "base/errors.h"
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
      throw TooFewValues();
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
      throw CorruptFile("binary values cannot have encoding number " +
                        std::to_string(encoding));
  }
}

}  // namespace torchparquet
