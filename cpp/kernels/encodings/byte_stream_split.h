#pragma once

#include <cstdint>

namespace torchparquet::kernels {

// BYTE_STREAM_SPLIT values of `width` bytes: stream k has byte k of every value.
struct ByteStreams {
  const uint8_t* first;  // byte 0 of the first wanted value
  int64_t stride;        // bytes from a stream to the next: the page's number of values
  int width;
};

// Writes `num_values` values of streams.width bytes to `out`. Reads exactly those bytes.
// Source: parquet-format, Encodings.md, "Byte Stream Split".
void DecodeByteStreamSplit(const ByteStreams& streams, int64_t num_values, uint8_t* out);

}  // namespace torchparquet::kernels
