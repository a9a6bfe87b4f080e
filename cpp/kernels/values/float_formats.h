#pragma once

#include <bit>
#include <cmath>
#include <cstdint>

namespace torchparquet::kernels {

// Bit patterns of the 16-bit floats, rounded to nearest, ties to even. As in torch, every
// number is rounded to float32 first.

inline uint16_t BFloat16Bits(float value) {
  const auto bits = std::bit_cast<uint32_t>(value);
  if (std::isnan(value)) return 0x7FC0;
  return static_cast<uint16_t>((bits + 0x7FFF + (bits >> 16 & 1)) >> 16);
}

inline uint16_t Float16Bits(float value) {
  const auto bits = std::bit_cast<uint32_t>(value);
  const uint32_t sign = bits >> 16 & 0x8000;
  const uint32_t magnitude = bits & 0x7FFFFFFF;
  uint32_t half;
  if (magnitude > 0x7F800000) {
    half = 0x7E00;  // NaN
  } else if (magnitude >= 0x47800000) {
    half = 0x7C00;  // beyond the largest by more than rounding: infinity
  } else if (magnitude < 0x38800000) {
    // Subnormal: adding 0.5 makes the addition round at the right bit.
    half = std::bit_cast<uint32_t>(std::bit_cast<float>(magnitude) + 0.5F) - 0x3F000000;
  } else {
    // Exponents of another bias; a carry out of the mantissa becomes the exponent's.
    half = (magnitude - 0x38000000 + 0xFFF + (magnitude >> 13 & 1)) >> 13;
  }
  return static_cast<uint16_t>(sign | half);
}

inline float FloatOfFloat16(uint16_t half) {
  const uint32_t sign = static_cast<uint32_t>(half & 0x8000) << 16;
  const uint32_t exponent = half >> 10 & 0x1F;
  const uint32_t mantissa = half & 0x3FF;
  if (exponent == 0) {
    const float magnitude = static_cast<float>(mantissa) * 0x1p-24F;
    return std::bit_cast<float>(std::bit_cast<uint32_t>(magnitude) | sign);
  }
  const uint32_t wide_exponent = exponent == 0x1F ? 0xFF : exponent + 112;
  return std::bit_cast<float>(sign | wide_exponent << 23 | mantissa << 13);
}

// The float16 of many float32. Neither `in` nor `out` need be aligned. The plain variant
// is for tests.
void Float16s(const uint8_t* in, int64_t num_values, uint8_t* out);
void PlainFloat16s(const uint8_t* in, int64_t num_values, uint8_t* out);

}  // namespace torchparquet::kernels
