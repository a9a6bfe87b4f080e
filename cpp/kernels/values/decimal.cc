#include "kernels/values/decimal.h"

#include <bit>
#include <cstddef>
#include <cstdlib>

namespace torchparquet::kernels {
namespace {

constexpr int32_t kMaxScale = 38;  // of 16 bytes

constexpr std::array<UInt128, kMaxScale + 1> MakePowersOf5() {
  std::array<UInt128, kMaxScale + 1> powers{1};
  for (size_t i = 1; i < powers.size(); ++i) powers[i] = 5 * powers[i - 1];
  return powers;
}
constexpr auto kPowersOf5 = MakePowersOf5();

int LeadingZeros(UInt128 value) {
  const auto high = static_cast<uint64_t>(value >> 64);
  return high != 0 ? std::countl_zero(high)
                   : 64 + std::countl_zero(static_cast<uint64_t>(value));
}

// 2^exponent, of a normal number.
double PowerOf2(int exponent) {
  return std::bit_cast<double>(static_cast<uint64_t>(1023 + exponent) << 52);
}

// The double nearest to value / 10^scale, of a value above 0. A quotient of 55 bits, the
// last of which also stands for the rest, is rounded as the exact one is: 53 bits stay.
double NearestQuotient(UInt128 value, int32_t scale) {
  constexpr int kQuotientBits = 55;
  constexpr int kMoreBits = 39;  // 5^38 leaves as many of 128 bits
  const UInt128 divisor = kPowersOf5[static_cast<size_t>(scale)];
  const int shift = LeadingZeros(value);
  value <<= shift;
  UInt128 quotient = value / divisor;
  UInt128 rest = value - quotient * divisor;
  int exponent = -shift - scale;
  if (quotient >> (kQuotientBits - 1) == 0) {
    rest <<= kMoreBits;
    const UInt128 more = rest / divisor;
    rest -= more * divisor;
    quotient = quotient << kMoreBits | more;
    exponent -= kMoreBits;
  }
  if (rest != 0) quotient |= 1;
  return static_cast<double>(quotient) * PowerOf2(exponent);
}

}  // namespace

std::string DigitsOf(Int128 value) {
  auto rest = static_cast<UInt128>(value);
  if (value < 0) rest = -rest;
  std::string digits;
  do {
    digits.insert(digits.begin(), static_cast<char>('0' + rest % 10));
    rest /= 10;
  } while (rest != 0);
  return value < 0 ? "-" + digits : digits;
}

double NearestDoubleOfAny(Int128 unscaled, int32_t scale) {
  if (scale < 0 || scale > kMaxScale) {
    // No type of 38 digits has such a scale. Not std::from_chars, which older C++
    // libraries lack. Without a decimal point no locale changes the result.
    const std::string text = DigitsOf(unscaled) + "e" + std::to_string(-int64_t{scale});
    return std::strtod(text.c_str(), nullptr);
  }
  if (scale == 0 || unscaled == 0) return static_cast<double>(unscaled);
  const auto bits = static_cast<UInt128>(unscaled);
  return unscaled < 0 ? -NearestQuotient(-bits, scale) : NearestQuotient(bits, scale);
}

}  // namespace torchparquet::kernels
