#pragma once

#include <cstdint>
#include <span>

#include "kernels/byte_array.h"
#include "kernels/encodings/delta_binary_packed.h"

namespace torchparquet::kernels {

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

}  // namespace torchparquet::kernels
