#pragma once

#include <array>
#include <cstdint>
#include <span>

#include "kernels/byte_array.h"
#include "kernels/encodings/delta_binary_packed.h"

namespace torchparquet::kernels {

// PLAIN: each value follows its length of four bytes.
class PlainByteArrayReader : public ByteArrayReader {
 public:
  // `bytes` must outlive the reader.
  explicit PlainByteArrayReader(std::span<const uint8_t> bytes) : bytes_(bytes) {}

  void Read(int64_t num_values, uint32_t* lengths, ByteSink* sink) override;
  void Skip(int64_t num_values) override;

 private:
  int64_t ReadShort(int64_t num_values, uint32_t* lengths, ByteSink* sink);
  uint32_t TakeValue();

  std::span<const uint8_t> bytes_;
};

// DELTA_LENGTH_BYTE_ARRAY: the lengths of all values, then the values end to end.
// Source: parquet-format, Encodings.md, "Delta-length byte array".
class DeltaLengthByteArrayReader : public ByteArrayReader {
 public:
  // `bytes` must outlive the reader. Decodes the lengths once to find their end, and
  // again when values are read, so lengths take no memory. Throws Error(kCorruptFile) if
  // there are more than `max_values`, the number in the page header, or if lengths are
  // negative or go beyond the page.
  DeltaLengthByteArrayReader(std::span<const uint8_t> bytes, int64_t max_values);

  int64_t num_values() const { return lengths_.num_values(); }

  void Read(int64_t num_values, uint32_t* lengths, ByteSink* sink) override;
  void Skip(int64_t num_values) override;

  // For values that are joined from parts: writes the lengths of the next `num_values`
  // values and moves past them. Returns the first byte of the first value. The values
  // stand end to end, before ReadableEnd().
  const uint8_t* Take(int64_t num_values, uint32_t* lengths);
  const uint8_t* ReadableEnd() const { return values_.data() + values_.size(); }

 private:
  DeltaBinaryPackedReader<uint32_t> lengths_;
  std::span<const uint8_t> values_;  // neither read nor skipped
};

// DELTA_BYTE_ARRAY: for each value, the number of bytes that it shares with the start of
// the value before it, then the bytes that follow. Source: parquet-format, Encodings.md,
// "Delta Strings".
class DeltaByteArrayReader : public ByteArrayReader {
 public:
  // `bytes` must outlive the reader. Throws Error(kCorruptFile) if the numbers of
  // prefixes and suffixes differ, if there are more than `max_values`, the number in the
  // page header, or if suffixes go beyond the page.
  DeltaByteArrayReader(std::span<const uint8_t> bytes, int64_t max_values);

  void Read(int64_t num_values, uint32_t* lengths, ByteSink* sink) override;
  void Skip(int64_t num_values) override;

 private:
  // The parts of the next values, at most kByteArrayBlock.
  struct Parts {
    std::array<uint32_t, kByteArrayBlock> prefix_lengths;
    std::array<uint32_t, kByteArrayBlock> suffix_lengths;
    const uint8_t* suffixes;
  };

  void Take(int64_t num_values, Parts* parts, uint32_t* lengths);
  void Join(const Parts& parts, std::span<const uint32_t> lengths, ByteSink* sink);

  DeltaBinaryPackedReader<uint32_t> prefix_lengths_;
  DeltaLengthByteArrayReader suffixes_;
  ByteSink previous_;  // the last value that was read or skipped
};

}  // namespace torchparquet::kernels
