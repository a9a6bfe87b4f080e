#include "kernels/values/transform.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <memory>
#include <optional>
#include <vector>

#include "caught.h"
#include "draws.h"
#include "exact_buffer.h"
#include "kernels/values/conversion.h"

namespace torchparquet::kernels {
namespace {

using testing::Draws;
using testing::ExactBuffer;
using testing::Throws;
using Kind = Transform::Step::Kind;

constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();

constexpr double kLastBits = 5e-16;

// True if they differ by less than a part of the second, or are the same of what is no
// number.
bool AreNear(double value, double expected, double part) {
  if (std::isnan(expected)) return std::isnan(value);
  if (std::isinf(expected)) return value == expected;
  return std::abs(value - expected) <= part * std::abs(expected);
}

// Values of a type, converted to T, with a transform or without.
template <typename T>
std::vector<T> Converted(const std::vector<uint8_t>& stored, const StoredType& type,
                         Dtype dtype,
                         const std::shared_ptr<const Transform>& transform = nullptr) {
  const auto conversion = Conversion::Find(type, dtype, 0, transform);
  REQUIRE(conversion);
  const auto num_values = std::ssize(stored) / type.num_bytes;
  ExactBuffer<uint8_t> in(stored);
  std::vector<T> out(static_cast<size_t>(num_values));
  conversion->Convert(in.span().data(), num_values,
                      reinterpret_cast<uint8_t*>(out.data()));
  return out;
}

TEST_CASE("each form of numbers is transformed as float64") {
  Draws draws(5);
  const auto transform = std::make_shared<const Transform>(Transform::Parts{
      .steps = {{Kind::kScale, 3, 0.5}, {Kind::kClip, -40, 90}, {Kind::kLog1p}}});
  for (const StoredType& type :
       {StoredType{Stored::kBool, 1}, StoredType{Stored::kInt32, 4},
        StoredType{Stored::kUInt32, 4}, StoredType{Stored::kInt64, 8},
        StoredType{Stored::kUInt64, 8}, StoredType{Stored::kInt96, 12},
        StoredType{Stored::kFloat16, 2}, StoredType{Stored::kFloat32, 4},
        StoredType{Stored::kFloat64, 8}, StoredType{Stored::kDecimal64, 8, 2},
        StoredType{Stored::kDecimalBytes, 5, 2}}) {
    CAPTURE(static_cast<int>(type.stored));
    // More than fit one block.
    std::vector<uint8_t> stored(static_cast<size_t>(1300 * type.num_bytes));
    for (uint8_t& byte : stored) {
      byte =
          static_cast<uint8_t>(draws.Between(0, type.stored == Stored::kBool ? 1 : 255));
    }
    const auto plain = Converted<double>(stored, type, Dtype::kFloat64);
    const auto doubles = Converted<double>(stored, type, Dtype::kFloat64, transform);
    const auto floats = Converted<float>(stored, type, Dtype::kFloat32, transform);
    for (size_t i = 0; i < plain.size(); ++i) {
      const double scaled = (plain[i] - 3) / 0.5;
      const double clipped = std::isnan(scaled) ? scaled : std::clamp(scaled, -40., 90.);
      const double expected = std::log1p(clipped);
      CHECK(AreNear(doubles[i], expected, kLastBits));
      CHECK(AreNear(floats[i], expected, 1e-7));
    }
  }
}

TEST_CASE("logarithms of 1 + x are right up to the last bits, near -1 and 0 too") {
  Draws draws(7);
  const Transform transform({.steps = {{Kind::kLog1p}}});
  constexpr double kInfinity = std::numeric_limits<double>::infinity();
  std::vector<double> values = {0,    -0.0,  -1,     -1.5,  kInfinity, -kInfinity,
                                kNaN, 1e308, 1e-320, 1e-17, -1e-17,    -1 + 1e-16};
  for (int64_t i = 0; i < 20'000; ++i) {
    const double part = static_cast<double>(draws.Between(-1'000'000, 1'000'000)) / 1e6;
    values.push_back(std::ldexp(part, static_cast<int>(draws.Between(-90, 0))));
    values.push_back(std::ldexp(std::abs(part), static_cast<int>(draws.Between(0, 90))));
  }
  std::vector<uint64_t> words;
  for (const double value : values) words.push_back(std::bit_cast<uint64_t>(value));
  transform.Apply(words);
  for (size_t i = 0; i < values.size(); ++i) {
    CAPTURE(values[i]);
    CHECK(AreNear(std::bit_cast<double>(words[i]), std::log1p(values[i]), kLastBits));
  }
}

TEST_CASE("borders below a value are counted, and all of them below NaN") {
  Draws draws(6);
  for (int64_t num_borders = 1; num_borders < 40; ++num_borders) {
    std::vector<double> borders;
    for (int64_t i = 0; i < num_borders; ++i) {
      borders.push_back(static_cast<double>(3 * i));
    }
    for (const bool counts_equal : {false, true}) {
      const Transform transform({.borders = borders, .counts_equal = counts_equal});
      for (int64_t i = 0; i < 50; ++i) {
        const auto value = static_cast<double>(draws.Between(-5, 3 * num_borders + 5));
        const auto expected = std::ranges::count_if(borders, [&](double border) {
          return counts_equal ? border <= value : border < value;
        });
        std::vector<uint64_t> words = {std::bit_cast<uint64_t>(value),
                                       std::bit_cast<uint64_t>(kNaN)};
        transform.Apply(words);
        CHECK(words[0] == static_cast<uint64_t>(expected));
        CHECK(words[1] == static_cast<uint64_t>(num_borders));
      }
    }
  }
}

// The expected values are from the package xxhash of Python.
TEST_CASE("hashes depend on the seed, and on the value alone") {
  const auto hash = [](uint64_t seed) {
    return std::make_shared<const Transform>(
        Transform::Parts{.num_buckets = int64_t{1} << 62, .seed = seed});
  };
  const std::vector<uint8_t> text = {'u', 's', 'e', 'r'};
  CHECK(hash(0)->BucketOf(text) == 4440828080198502894);
  CHECK(hash(7)->BucketOf(text) == 1504738338741292584);
  const std::vector<uint8_t> of_int32 = {0xFE, 0xFF, 0xFF, 0xFF};
  std::vector<uint8_t> of_int64(8, 0xFF);
  of_int64[0] = 0xFE;
  const int64_t expected = 3165067903000145367;
  CHECK(
      Converted<int64_t>(of_int32, {Stored::kInt32, 4}, Dtype::kInt64, hash(7)).front() ==
      expected);
  CHECK(
      Converted<int64_t>(of_int64, {Stored::kInt64, 8}, Dtype::kInt64, hash(7)).front() ==
      expected);
  CHECK(Converted<int64_t>(of_int64, {Stored::kUInt64, 8}, Dtype::kInt64, hash(7))
            .front() == expected);
}

TEST_CASE("a transform that does not take the values is no conversion") {
  const auto hash = std::make_shared<const Transform>(Transform::Parts{.num_buckets = 5});
  const auto steps =
      std::make_shared<const Transform>(Transform::Parts{.steps = {{Kind::kLog1p}}});
  CHECK_FALSE(Conversion::Find({Stored::kFloat32, 4}, Dtype::kInt64, 0, hash));
  CHECK_FALSE(Conversion::Find({Stored::kInt32, 4}, Dtype::kInt64, 0, steps));
  CHECK_FALSE(Conversion::Find({Stored::kFixedBytes, 3}, Dtype::kFloat32, 0, steps));
  CHECK(Conversion::Find({Stored::kNull, 4}, Dtype::kFloat32, 0, steps));
  CHECK(Throws(ErrorKind::kInvalidArgument,
               [] { Transform({.steps = {{Kind::kLog1p}}, .num_buckets = 3}); }));
}

}  // namespace
}  // namespace torchparquet::kernels
