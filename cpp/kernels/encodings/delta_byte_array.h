#pragma once

#include <array>
#include <cstdint>
#include <span>

#include "kernels/byte_array.h"
#include "kernels/encodings/delta_binary_packed.h"
#include "kernels/encodings/delta_length_byte_array.h"

namespace torchparquet::kernels {

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
