#include "kernels/values/float_formats.h"

#include <cstring>

#include "kernels/instructions.h"

#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace torchparquet::kernels {
namespace {

#if defined(__x86_64__)

__attribute__((target("avx2,f16c"))) void F16cFloat16s(const uint8_t* in,
                                                       int64_t num_values, uint8_t* out) {
  constexpr int64_t kStep = 8;
  const __m256 sign_bit = _mm256_set1_ps(-0.0F);
  const __m256 quiet_nan = _mm256_castsi256_ps(_mm256_set1_epi32(0x7FC00000));
  for (; num_values >= kStep; num_values -= kStep) {
    __m256 values = _mm256_loadu_ps(reinterpret_cast<const float*>(in));
    // The instruction would keep the payload of a NaN.
    const __m256 nan = _mm256_or_ps(_mm256_and_ps(values, sign_bit), quiet_nan);
    values = _mm256_blendv_ps(values, nan, _mm256_cmp_ps(values, values, _CMP_UNORD_Q));
    _mm_storeu_si128(reinterpret_cast<__m128i*>(out),
                     _mm256_cvtps_ph(values, _MM_FROUND_TO_NEAREST_INT));
    in += kStep * 4;
    out += kStep * 2;
  }
  PlainFloat16s(in, num_values, out);
}

#endif

}  // namespace

void PlainFloat16s(const uint8_t* in, int64_t num_values, uint8_t* out) {
  for (int64_t i = 0; i < num_values; ++i) {
    float value;
    std::memcpy(&value, in + 4 * i, sizeof(value));
    const uint16_t bits = Float16Bits(value);
    std::memcpy(out + 2 * i, &bits, sizeof(bits));
  }
}

void Float16s(const uint8_t* in, int64_t num_values, uint8_t* out) {
#if defined(__x86_64__)
  if (ChosenInstructions() >= Instructions::kAvx2) {
    return F16cFloat16s(in, num_values, out);
  }
#endif
  PlainFloat16s(in, num_values, out);
}

}  // namespace torchparquet::kernels
