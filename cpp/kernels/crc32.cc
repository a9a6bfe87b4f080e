#include "kernels/crc32.h"

#include <array>
#include <cstddef>

#include "kernels/instructions.h"

#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace torchparquet::kernels {
namespace {

// The remainder of each byte when 0 to 7 bytes of zeros follow it.
using Tables = std::array<std::array<uint32_t, 256>, 8>;

constexpr Tables MakeTables() {
  constexpr uint32_t kPolynomial = 0xEDB88320;
  Tables tables{};
  for (uint32_t byte = 0; byte < 256; ++byte) {
    uint32_t remainder = byte;
    for (int bit = 0; bit < 8; ++bit) {
      remainder = (remainder >> 1) ^ ((remainder & 1) != 0 ? kPolynomial : 0);
    }
    tables[0][byte] = remainder;
  }
  for (size_t zeros = 1; zeros < tables.size(); ++zeros) {
    for (size_t byte = 0; byte < 256; ++byte) {
      const uint32_t before = tables[zeros - 1][byte];
      tables[zeros][byte] = (before >> 8) ^ tables[0][before & 0xFF];
    }
  }
  return tables;
}

// Continues the checksum of the bytes before `bytes`, eight bytes at a time.
uint32_t TableCrc32(uint32_t checksum, std::span<const uint8_t> bytes) {
  static constexpr Tables kTables = MakeTables();
  uint32_t remainder = ~checksum;
  for (; bytes.size() >= kTables.size(); bytes = bytes.subspan(kTables.size())) {
    uint32_t next = 0;
    for (size_t i = 0; i < kTables.size(); ++i) {
      const uint32_t of_before = i < 4 ? remainder >> (8 * i) : 0;
      next ^= kTables[7 - i][(of_before ^ bytes[i]) & 0xFF];
    }
    remainder = next;
  }
  for (const uint8_t byte : bytes) {
    remainder = (remainder >> 8) ^ kTables[0][(remainder ^ byte) & 0xFF];
  }
  return ~remainder;
}

}  // namespace

#if defined(__x86_64__)
namespace {

constexpr size_t kVectorBytes = sizeof(__m128i);
constexpr size_t kStepBytes = 4 * kVectorBytes;

// The method and its constants, remainders of powers of x by the polynomial: Gopal et
// al., "Fast CRC Computation for Generic Polynomials Using PCLMULQDQ Instruction", Intel,
// 2009.

__attribute__((target("pclmul,sse4.1"), always_inline)) inline __m128i LoadVector(
    const uint8_t* in) {
  return _mm_loadu_si128(reinterpret_cast<const __m128i*>(in));
}

// Moves `remainder` forward by the distance that `powers` encodes, to the start of
// `next`, and adds `next`.
__attribute__((target("pclmul,sse4.1"), always_inline)) inline __m128i Fold(
    __m128i remainder, __m128i powers, __m128i next) {
  const __m128i low = _mm_clmulepi64_si128(remainder, powers, 0x00);
  const __m128i high = _mm_clmulepi64_si128(remainder, powers, 0x11);
  return _mm_xor_si128(_mm_xor_si128(low, high), next);
}

// The remainder of 128 bits, by Barrett's reduction.
__attribute__((target("pclmul,sse4.1"), always_inline)) inline uint32_t Reduce(
    __m128i remainder, __m128i by_vector) {
  const __m128i low_halves = _mm_setr_epi32(-1, 0, -1, 0);
  const __m128i by_word = _mm_set_epi64x(0, 0x163CD6124);
  const __m128i polynomial = _mm_set_epi64x(0x1F7011641, 0x1DB710641);
  // To 96 bits, to 64, and to 32.
  remainder = _mm_xor_si128(_mm_srli_si128(remainder, 8),
                            _mm_clmulepi64_si128(remainder, by_vector, 0x10));
  remainder = _mm_xor_si128(
      _mm_srli_si128(remainder, 4),
      _mm_clmulepi64_si128(_mm_and_si128(remainder, low_halves), by_word, 0x00));
  const __m128i quotient =
      _mm_clmulepi64_si128(_mm_and_si128(remainder, low_halves), polynomial, 0x10);
  const __m128i product =
      _mm_clmulepi64_si128(_mm_and_si128(quotient, low_halves), polynomial, 0x00);
  return static_cast<uint32_t>(_mm_extract_epi32(_mm_xor_si128(remainder, product), 1));
}

// For whole vectors, at least four.
__attribute__((target("pclmul,sse4.1"))) uint32_t
VectorCrc32(std::span<const uint8_t> bytes) {
  const __m128i by_step = _mm_set_epi64x(0x1C6E41596, 0x154442BD4);
  const __m128i by_vector = _mm_set_epi64x(0x0CCAA009E, 0x1751997D0);
  const uint8_t* in = bytes.data();
  const uint8_t* const end = in + bytes.size();
  // Four lanes: a product takes as long as four take to start.
  const __m128i ones = _mm_cvtsi32_si128(-1);
  __m128i lane_0 = _mm_xor_si128(LoadVector(in), ones);
  __m128i lane_1 = LoadVector(in + kVectorBytes);
  __m128i lane_2 = LoadVector(in + 2 * kVectorBytes);
  __m128i lane_3 = LoadVector(in + 3 * kVectorBytes);
  for (in += kStepBytes; static_cast<size_t>(end - in) >= kStepBytes; in += kStepBytes) {
    lane_0 = Fold(lane_0, by_step, LoadVector(in));
    lane_1 = Fold(lane_1, by_step, LoadVector(in + kVectorBytes));
    lane_2 = Fold(lane_2, by_step, LoadVector(in + 2 * kVectorBytes));
    lane_3 = Fold(lane_3, by_step, LoadVector(in + 3 * kVectorBytes));
  }
  __m128i remainder = Fold(lane_0, by_vector, lane_1);
  remainder = Fold(remainder, by_vector, lane_2);
  remainder = Fold(remainder, by_vector, lane_3);
  for (; in < end; in += kVectorBytes) {
    remainder = Fold(remainder, by_vector, LoadVector(in));
  }
  return ~Reduce(remainder, by_vector);
}

}  // namespace
#endif

uint32_t PlainCrc32(std::span<const uint8_t> bytes) { return TableCrc32(0, bytes); }

uint32_t Crc32(std::span<const uint8_t> bytes) {
#if defined(__x86_64__)
  if (ChosenInstructions() >= Instructions::kAvx2 && bytes.size() >= kStepBytes) {
    const size_t whole = bytes.size() / kVectorBytes * kVectorBytes;
    const uint32_t of_whole = VectorCrc32(bytes.first(whole));
    return TableCrc32(of_whole, bytes.subspan(whole));
  }
#endif
  return PlainCrc32(bytes);
}

}  // namespace torchparquet::kernels
