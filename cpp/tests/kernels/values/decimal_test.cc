#include "kernels/values/decimal.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <cstdlib>
#include <string>
#include <vector>

#include "draws.h"

namespace torchparquet::kernels {
namespace {

using testing::Draws;

constexpr Int128 kLeast = static_cast<Int128>(UInt128{1} << 127);

// By the C library's reading of the digits.
double ReadByLibrary(Int128 unscaled, int32_t scale) {
  const std::string text = DigitsOf(unscaled) + "e" + std::to_string(-scale);
  return std::strtod(text.c_str(), nullptr);
}

int64_t NumWrong(const std::vector<Int128>& numbers, int32_t scale) {
  return std::ranges::count_if(numbers, [&](Int128 number) {
    const double expected = ReadByLibrary(number, scale);
    return NearestDouble(number, scale) != expected ||
           NearestDoubleOfAny(number, scale) != expected;
  });
}

Int128 Power(Int128 base, int32_t exponent) {
  Int128 power = 1;
  for (int32_t i = 0; i < exponent; ++i) power *= base;
  return power;
}

TEST_CASE("digits of the shortest and longest numbers") {
  CHECK(DigitsOf(0) == "0");
  CHECK(DigitsOf(-7) == "-7");
  CHECK(DigitsOf(Power(10, 38)) == "1" + std::string(38, '0'));
  CHECK(DigitsOf(kLeast) == "-170141183460469231731687303715884105728");
  CHECK(DigitsOf(-(kLeast + 1)) == "170141183460469231731687303715884105727");
}

TEST_CASE("decimals of every size and scale become the nearest double") {
  Draws draws(310);
  std::vector<Int128> numbers = {0, kLeast, kLeast + 1};
  for (int bits = 1; bits <= 127; ++bits) {
    const UInt128 power = UInt128{1} << (bits - 1);
    for (int i = 0; i < 20; ++i) {
      const UInt128 random = UInt128{draws.Bits()} << 64 | draws.Bits();
      numbers.push_back(static_cast<Int128>(power | (random & (power - 1))));
    }
    for (const int around : {-1, 0, 1}) {
      numbers.push_back(static_cast<Int128>(power) + around);
    }
  }
  for (int32_t digits = 1; digits <= 38; ++digits) {
    numbers.push_back(Power(10, digits) - 1);
    numbers.push_back(Power(10, digits));
  }
  for (size_t i = numbers.size(); i-- > 3;) numbers.push_back(-numbers[i]);
  for (int32_t scale = -45; scale <= 45; ++scale) {
    CAPTURE(scale);
    CHECK(NumWrong(numbers, scale) == 0);
  }
}

// An odd number of 54 bits times a power of 2 lies halfway between two doubles.
TEST_CASE("decimals halfway between two doubles, and right beside") {
  Draws draws(311);
  for (int32_t scale = 0; scale <= 31; ++scale) {
    CAPTURE(scale);
    const Int128 fives = Power(5, scale);
    std::vector<Int128> numbers;
    for (int i = 0; i < 300; ++i) {
      const auto odd = static_cast<Int128>(draws.Bits() >> 10 | uint64_t{1} << 53 | 1);
      Int128 number = odd * fives;
      // As many more twos as there is room for.
      for (int64_t twos = draws.Below(scale + 20); twos > 0; --twos) {
        if (number < Int128{1} << 125) number *= 2;
      }
      for (const int beside : {-1, 0, 1}) {
        numbers.push_back(number + beside);
        numbers.push_back(-number + beside);
      }
    }
    CHECK(NumWrong(numbers, scale) == 0);
  }
}

}  // namespace
}  // namespace torchparquet::kernels
