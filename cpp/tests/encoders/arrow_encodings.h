#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace torchparquet::testing {

// Arrow's encoders and decoders, as the oracle that shares no code with ours.
enum class ArrowEncoding {
  kPlain,
  kRle,
  kDeltaBinaryPacked,
  kDeltaLengthByteArray,
  kDeltaByteArray,
  kByteStreamSplit,
};

// T is uint8_t for BOOLEAN (0 or 1), uint32_t for INT32, uint64_t for INT64, std::string
// for BYTE_ARRAY. Arrow's exceptions are let through.
template <typename T>
std::vector<uint8_t> ArrowEncode(ArrowEncoding encoding, const std::vector<T>& values);
template <typename T>
std::vector<T> ArrowDecode(ArrowEncoding encoding, std::span<const uint8_t> bytes,
                           int64_t num_values);

// The same for FIXED_LEN_BYTE_ARRAY values that stand end to end.
std::vector<uint8_t> ArrowEncodeFixed(ArrowEncoding encoding, int width,
                                      const std::vector<uint8_t>& values);

}  // namespace torchparquet::testing
