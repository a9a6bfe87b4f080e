#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>

#include "kernels/bit_unpack.h"
#include "kernels/instructions.h"

// A loop of zstd where the processor has more instructions. Within another function it
// would not have all registers for itself.
#if defined(__x86_64__)
#define TORCHPARQUET_BMI2 __attribute__((target("avx2,bmi,bmi2"), noinline))
#endif

namespace torchparquet::kernels {

inline uint64_t LowBits(uint64_t bits, uint64_t count) {
  return bits & ~(~uint64_t{0} << count);
}

// The same, in one instruction if there is one: GCC would copy the count for it.
template <bool kBmi2>
inline uint64_t LowBits(uint64_t bits, uint64_t count) {
#if defined(TORCHPARQUET_BMI2)
  if constexpr (kBmi2) {
    uint64_t low;
    asm("bzhi %2, %1, %0" : "=r"(low) : "r"(bits), "r"(count));
    return low;
  }
#endif
  return LowBits(bits, count);
}

// Bits that are read from the last one to the first, as zstd stores them. Reads up to 7
// bytes before `begin`, which the caller must have.
struct BackwardBits {
  const uint8_t* begin = nullptr;
  int64_t num_left = 0;

  // The bits of `bytes` below the highest one that is set. Nothing if the last byte is 0.
  static std::optional<BackwardBits> In(std::span<const uint8_t> bytes) {
    if (bytes.empty() || bytes.back() == 0) return std::nullopt;
    const auto num_bits = static_cast<int64_t>(8 * bytes.size());
    return BackwardBits{bytes.data(), num_bits - std::countl_zero(bytes.back()) - 1};
  }

  // The next `count` bits, up to 56, of at least 0 that are left. Those before the first
  // are any bits.
  uint64_t Peek(int count) const {
    const uint64_t bits = Load64Bits(begin + (num_left >> 3) - 7);
    return LowBits(bits >> (56 + (num_left & 7) - count), static_cast<uint64_t>(count));
  }
  uint64_t Take(int count) {
    const uint64_t bits = Peek(count);
    num_left -= count;
    return bits;
  }
};

}  // namespace torchparquet::kernels
