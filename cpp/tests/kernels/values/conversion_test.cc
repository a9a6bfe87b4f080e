#include "kernels/values/conversion.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <cfenv>
#include <cmath>
#include <cstring>
#include <limits>
#include <optional>
#include <set>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "caught.h"
#include "draws.h"
#include "exact_buffer.h"
#include "kernels/values/float_formats.h"

namespace torchparquet::kernels {
namespace {

using testing::Caught;
using testing::Draws;
using testing::ExactBuffer;
using testing::Mentions;
using testing::Throws;

__extension__ using Int128 = __int128;
__extension__ using UInt128 = unsigned __int128;

constexpr int32_t kScale = 3;

constexpr std::pair<Stored, int32_t> kIntegers[] = {
    {Stored::kInt8, 4},  {Stored::kUInt8, 4},  {Stored::kInt16, 4}, {Stored::kUInt16, 4},
    {Stored::kInt32, 4}, {Stored::kUInt32, 4}, {Stored::kInt64, 8}, {Stored::kUInt64, 8}};
constexpr std::pair<Stored, int32_t> kDecimals[] = {
    {Stored::kDecimal32, 4},     {Stored::kDecimal64, 8},    {Stored::kDecimalBytes, 1},
    {Stored::kDecimalBytes, 5},  {Stored::kDecimalBytes, 8}, {Stored::kDecimalBytes, 9},
    {Stored::kDecimalBytes, 16}, {Stored::kDecimal128, 16}};
constexpr Dtype kIntegerDtypes[] = {Dtype::kInt8,   Dtype::kUInt8, Dtype::kInt16,
                                    Dtype::kUInt16, Dtype::kInt32, Dtype::kUInt32,
                                    Dtype::kInt64,  Dtype::kUInt64};
constexpr Dtype kFloatDtypes[] = {Dtype::kFloat16, Dtype::kBFloat16, Dtype::kFloat32,
                                  Dtype::kFloat64};

std::vector<StoredType> AllTypes() {
  std::vector<StoredType> types = {{Stored::kBool, 1},    {Stored::kInt96, 12},
                                   {Stored::kFloat16, 2}, {Stored::kFloat32, 4},
                                   {Stored::kFloat64, 8}, {Stored::kFixedBytes, 3}};
  for (const auto& [stored, num_bytes] : kIntegers) types.push_back({stored, num_bytes});
  for (const auto& [stored, num_bytes] : kDecimals)
    types.push_back({stored, num_bytes, kScale});
  return types;
}

// The limits of an integer of `bits` bits.
std::pair<Int128, Int128> Limits(int bits, bool is_signed) {
  if (!is_signed) return {0, (Int128{1} << bits) - 1};
  return {-(Int128{1} << (bits - 1)), (Int128{1} << (bits - 1)) - 1};
}

std::pair<Int128, Int128> LimitsOf(Dtype dtype) {
  const auto index = std::ranges::find(kIntegerDtypes, dtype) - kIntegerDtypes;
  return Limits(8 << (index / 2), index % 2 == 0);
}

std::pair<Int128, Int128> LimitsOf(Stored stored) {
  const auto index =
      std::ranges::find(kIntegers, stored, [](const auto& pair) { return pair.first; }) -
      kIntegers;
  return Limits(8 << (index / 2), index % 2 == 0);
}

bool Fits(Int128 value, std::pair<Int128, Int128> limits) {
  return value >= limits.first && value <= limits.second;
}

bool IsFloat(Dtype dtype) {
  return std::ranges::find(kFloatDtypes, dtype) != std::end(kFloatDtypes);
}

// A float of `exponent_bits` and `fraction_bits`, rounded digit by digit: to the nearest,
// ties to even. Slow and apart from the kernels: no bits of `value` are looked at.
uint64_t RoundedBits(long double value, int exponent_bits, int fraction_bits) {
  const uint64_t sign = std::signbit(value) ? uint64_t{1} : 0;
  const uint64_t infinity = ((uint64_t{1} << exponent_bits) - 1) << fraction_bits;
  const uint64_t sign_bit = sign << (exponent_bits + fraction_bits);
  const int bias = (1 << (exponent_bits - 1)) - 1;
  const long double magnitude = std::fabs(value);
  if (std::isinf(value)) return sign_bit | infinity;
  if (magnitude == 0) return sign_bit;
  int exponent = 0;
  std::frexp(magnitude, &exponent);
  exponent = std::max(exponent - 1, 1 - bias);
  // In units of the last place; rint rounds ties to even.
  auto units =
      static_cast<uint64_t>(std::rint(std::ldexp(magnitude, fraction_bits - exponent)));
  // A subnormal's units are below 2^fraction_bits; a carry moves into the exponent.
  const uint64_t bits =
      (static_cast<uint64_t>(exponent + bias - 1) << fraction_bits) + units;
  return sign_bit | std::min(bits, infinity);
}

// The bits of a float output, rounded first as torch rounds.
uint64_t FloatBits(long double value, Dtype dtype) {
  const auto narrowed = [&] {
    return static_cast<long double>(static_cast<float>(value));
  };
  switch (dtype) {
    case Dtype::kFloat16:
      return RoundedBits(narrowed(), 5, 10);
    case Dtype::kBFloat16:
      return RoundedBits(narrowed(), 8, 7);
    case Dtype::kFloat32:
      return RoundedBits(value, 8, 23);
    default:
      return RoundedBits(value, 11, 52);
  }
}

long double ValueOfFloat16(uint16_t bits) {
  const int exponent = bits >> 10 & 0x1F;
  const int fraction = bits & 0x3FF;
  long double magnitude = std::ldexp(static_cast<long double>(fraction), -24);
  if (exponent == 0x1F) {
    magnitude = fraction == 0 ? std::numeric_limits<long double>::infinity()
                              : std::numeric_limits<long double>::quiet_NaN();
  } else if (exponent > 0) {
    magnitude = std::ldexp(static_cast<long double>(1024 + fraction), exponent - 25);
  }
  return (bits & 0x8000) != 0 ? -magnitude : magnitude;
}

// Stored bytes of integers and decimals: two's complement of `value`.
void StoreInteger(const StoredType& type, Int128 value, uint8_t* out) {
  for (int32_t i = 0; i < type.num_bytes; ++i) {
    const int32_t place =
        type.stored == Stored::kDecimalBytes ? type.num_bytes - 1 - i : i;
    out[place] = static_cast<uint8_t>(value >> (8 * i));
  }
}

ExactBuffer<uint8_t> StoredIntegers(const StoredType& type,
                                    const std::vector<Int128>& values) {
  ExactBuffer<uint8_t> bytes(values.size() * static_cast<size_t>(type.num_bytes));
  uint8_t* next = bytes.data();
  for (const Int128 value : values) {
    StoreInteger(type, value, next);
    next += type.num_bytes;
  }
  return bytes;
}

template <typename T>
ExactBuffer<uint8_t> BytesOf(const std::vector<T>& values) {
  ExactBuffer<uint8_t> bytes(values.size() * sizeof(T));
  if (!values.empty()) std::memcpy(bytes.data(), values.data(), bytes.size());
  return bytes;
}

// Converts from an odd address, between buffers that hold not a byte too many. Returns
// each output item's bits.
std::vector<uint64_t> Convert(const StoredType& type, Dtype dtype,
                              ExactBuffer<uint8_t> stored) {
  const auto conversion = Conversion::Find(type, dtype);
  REQUIRE(conversion);
  REQUIRE(conversion->stored_bytes() == type.num_bytes);
  const size_t num_values = stored.size() / static_cast<size_t>(type.num_bytes);
  ExactBuffer<uint8_t> unaligned(stored.size() + 1);
  std::copy_n(stored.data(), stored.size(), unaligned.data() + 1);
  const auto item_bytes = static_cast<size_t>(conversion->out_bytes());
  REQUIRE(item_bytes == static_cast<size_t>(DtypeBytes(dtype)));
  const bool is_array = type.stored == Stored::kFixedBytes;
  const size_t cell_items = is_array ? static_cast<size_t>(type.num_bytes) : 1;
  std::vector<uint64_t> items(num_values * cell_items);
  ExactBuffer<uint8_t> out(items.size() * item_bytes);
  conversion->Convert(unaligned.data() + 1, static_cast<int64_t>(num_values), out.data());
  for (size_t i = 0; i < items.size(); ++i)
    std::memcpy(&items[i], out.data() + i * item_bytes, item_bytes);
  return items;
}

uint64_t LowBytes(Int128 value, Dtype dtype) {
  const auto bits = static_cast<uint64_t>(value);
  const int64_t num_bytes = DtypeBytes(dtype);
  return num_bytes == 8 ? bits : bits & ((uint64_t{1} << (8 * num_bytes)) - 1);
}

// Numbers of every size within `limits`, and those around which rounding and ranges
// change.
std::vector<Int128> Numbers(Draws& draws, std::pair<Int128, Int128> limits) {
  std::vector<Int128> numbers;
  const auto add = [&](Int128 value) {
    if (Fits(value, limits)) numbers.push_back(value);
  };
  for (int bit = 0; bit < 127; ++bit) {
    for (const int step : {-2, -1, 0, 1, 2}) {
      add((Int128{1} << bit) + step);
      add(-(Int128{1} << bit) + step);
    }
    // Ties of every float format, and their neighbours.
    for (const int digits : {8, 11, 24, 53}) {
      if (bit <= digits) continue;
      const Int128 tie = (Int128{1} << bit) + (Int128{1} << (bit - digits));
      for (const Int128 step : {-1, 0, 1}) {
        add(tie + step);
        add(-tie + step);
        add(tie + (Int128{1} << (bit - digits + 1)) + step);
      }
    }
  }
  for (int i = 0; i < 3000; ++i) {
    const auto bits =
        static_cast<Int128>(static_cast<UInt128>(draws.Bits()) << 64 | draws.Bits());
    add(bits >> draws.Below(127));
  }
  numbers.push_back(limits.first);
  numbers.push_back(limits.second);
  for (const Int128 odd : {Int128{65519}, Int128{65520}, Int128{65535}, Int128{65504}})
    add(odd);
  return numbers;
}

std::vector<Int128> Within(const std::vector<Int128>& numbers,
                           std::pair<Int128, Int128> limits) {
  std::vector<Int128> within;
  std::ranges::copy_if(numbers, std::back_inserter(within),
                       [&](Int128 number) { return Fits(number, limits); });
  return within;
}

std::string Digits(Int128 value) {
  if (value < 0)
    return "-" + Digits(-(value / 10)).substr(value > -10 ? 1 : 0) +
           std::to_string(static_cast<int>(-(value % 10)));
  std::string last(1, static_cast<char>('0' + static_cast<int>(value % 10)));
  return value < 10 ? last : Digits(value / 10) + last;
}

TEST_CASE("dtypes have the names of torch's") {
  std::set<std::string> names;
  for (int i = 0; i < kNumDtypes; ++i) {
    const auto dtype = static_cast<Dtype>(i);
    names.emplace(DtypeName(dtype));
    CHECK(DtypeOfName(DtypeName(dtype)) == dtype);
  }
  CHECK(names == std::set<std::string>{"bool", "int8", "uint8", "int16", "uint16",
                                       "int32", "uint32", "int64", "uint64", "float16",
                                       "bfloat16", "float32", "float64"});
  for (const char* wrong : {"", "float", "Int8", "int8 ", "torch.int8"})
    CHECK_FALSE(DtypeOfName(wrong));
}

// Written out by hand: what keeps its meaning, and nothing else.
TEST_CASE("which forms become which dtypes") {
  using Set = std::set<Dtype>;
  const Set integers(std::begin(kIntegerDtypes), std::end(kIntegerDtypes));
  const Set floats(std::begin(kFloatDtypes), std::end(kFloatDtypes));
  const auto with = [](Set set, const Set& more) {
    set.insert(more.begin(), more.end());
    return set;
  };
  for (const StoredType& type : AllTypes()) {
    CAPTURE(static_cast<int>(type.stored));
    Set expected;
    switch (type.stored) {
      case Stored::kBool:
        expected = with(with(integers, floats), {Dtype::kBool});
        break;
      case Stored::kFloat16:
      case Stored::kFloat32:
      case Stored::kFloat64:
        expected = floats;
        break;
      case Stored::kInt96:
      case Stored::kDecimal32:
      case Stored::kDecimal64:
      case Stored::kDecimalBytes:
      case Stored::kDecimal128:
        expected = with(floats, {Dtype::kInt64});
        break;
      case Stored::kFixedBytes:
        expected = {Dtype::kUInt8};
        break;
      default:
        expected = with(integers, floats);
    }
    const std::vector<Dtype> dtypes = DtypesOf(type);
    CHECK(Set(dtypes.begin(), dtypes.end()) == expected);
    CHECK(dtypes.size() == expected.size());
    for (int i = 0; i < kNumDtypes; ++i) {
      const auto dtype = static_cast<Dtype>(i);
      CHECK(Conversion::Find(type, dtype).has_value() == expected.contains(dtype));
    }
  }
}

TEST_CASE("no values are no bytes") {
  for (const StoredType& type : AllTypes()) {
    for (const Dtype dtype : DtypesOf(type))
      CHECK(Convert(type, dtype, ExactBuffer<uint8_t>(0)).empty());
  }
}

TEST_CASE("integers become every dtype that holds them") {
  Draws draws(1);
  for (const auto& [stored, num_bytes] : kIntegers) {
    CAPTURE(static_cast<int>(stored));
    const StoredType type{stored, num_bytes};
    const std::vector<Int128> numbers = Numbers(draws, LimitsOf(stored));
    for (const Dtype dtype : DtypesOf(type)) {
      CAPTURE(DtypeName(dtype));
      const std::vector<Int128> fitting =
          IsFloat(dtype) ? numbers : Within(numbers, LimitsOf(dtype));
      const auto items = Convert(type, dtype, StoredIntegers(type, fitting));
      int64_t num_wrong = 0;
      for (size_t i = 0; i < fitting.size(); ++i) {
        num_wrong +=
            items[i] != (IsFloat(dtype)
                             ? FloatBits(static_cast<long double>(fitting[i]), dtype)
                             : LowBytes(fitting[i], dtype));
      }
      CHECK(num_wrong == 0);
    }
  }
}

TEST_CASE("the first integer that does not fit is named") {
  Draws draws(2);
  for (const auto& [stored, num_bytes] : kIntegers) {
    const StoredType type{stored, num_bytes};
    const std::vector<Int128> numbers = Numbers(draws, LimitsOf(stored));
    for (const Dtype dtype : kIntegerDtypes) {
      CAPTURE(DtypeName(dtype));
      std::vector<Int128> fitting = Within(numbers, LimitsOf(dtype));
      fitting.resize(std::min<size_t>(fitting.size(), 100));
      std::vector<Int128> misfits;
      std::ranges::copy_if(numbers, std::back_inserter(misfits),
                           [&](Int128 number) { return !Fits(number, LimitsOf(dtype)); });
      for (size_t i = 0; i < misfits.size(); i += 1 + misfits.size() / 20) {
        for (const size_t place : {size_t{0}, fitting.size() / 2, fitting.size()}) {
          std::vector<Int128> values = fitting;
          values.insert(values.begin() + static_cast<std::ptrdiff_t>(place), misfits[i]);
          values.push_back(misfits[0]);
          const auto error =
              Caught([&] { Convert(type, dtype, StoredIntegers(type, values)); });
          REQUIRE(error);
          CHECK(error->kind() == ErrorKind::kCast);
          const std::string message = error->what();
          CHECK(message.ends_with(" " + Digits(misfits[i])));
          CHECK(error->value() == static_cast<int64_t>(place));
          CHECK(Mentions(*error, " " + std::string(DtypeName(dtype)) + ":"));
        }
      }
    }
  }
}

TEST_CASE(
    "a stored INT32 that its logical type cannot hold is corrupt, whatever the dtype") {
  for (const Stored stored :
       {Stored::kInt8, Stored::kUInt8, Stored::kInt16, Stored::kUInt16}) {
    const StoredType type{stored, 4};
    const auto [least, greatest] = LimitsOf(stored);
    std::vector<Int128> all;
    for (Int128 value = least; value <= greatest; ++value) all.push_back(value);
    for (const Dtype dtype : kFloatDtypes)
      CHECK(Convert(type, dtype, StoredIntegers(type, all)).size() == all.size());
    all.resize(100);
    // Numbers of as many bits are extended with their sign or without.
    const Int128 size = greatest - least + 1;
    for (const Dtype dtype : DtypesOf(type)) {
      for (const Int128 misfit :
           {-size / 2 - 1, size, -(Int128{1} << 31), (Int128{1} << 31) - 1}) {
        for (const size_t place : {size_t{0}, all.size() / 2, all.size() - 1}) {
          std::vector<Int128> values = all;
          values[place] = misfit;
          CHECK(Throws(ErrorKind::kCorruptFile,
                       [&] { Convert(type, dtype, StoredIntegers(type, values)); }));
        }
      }
    }
  }
}

TEST_CASE("bools become 0 and 1") {
  const StoredType type{Stored::kBool, 1};
  Draws draws(3);
  std::vector<uint8_t> stored(1001);
  for (uint8_t& value : stored) value = draws.OneIn(2);
  for (const Dtype dtype : DtypesOf(type)) {
    CAPTURE(DtypeName(dtype));
    const auto items = Convert(type, dtype, BytesOf(stored));
    bool same = items.size() == stored.size();
    for (size_t i = 0; i < stored.size(); ++i)
      same &= items[i] == (IsFloat(dtype) ? FloatBits(stored[i], dtype) : stored[i]);
    CHECK(same);
  }
}

template <typename T>
std::vector<T> Floats(Draws& draws) {
  using Limits = std::numeric_limits<T>;
  std::vector<T> values = {0,
                           Limits::infinity(),
                           Limits::max(),
                           Limits::min(),
                           Limits::denorm_min(),
                           Limits::epsilon()};
  // Around each power of two, and halfway between what the narrower formats hold.
  for (int exponent = -160; exponent < 140; ++exponent) {
    const T power = std::ldexp(T{1}, exponent);
    for (const int digits : {8, 11, 24}) {
      const T tie = power + std::ldexp(power, -digits);
      const T odd_tie = power + 3 * std::ldexp(power, -digits);
      for (const T value : {power, tie, odd_tie}) {
        values.insert(values.end(), {value, std::nextafter(value, T{0}),
                                     std::nextafter(value, Limits::infinity())});
      }
    }
  }
  // Halfway between two subnormals of float16, float32 and bfloat16.
  for (const int unit : {-24, -133, -149}) {
    for (int i = 1; i < 40; i += 2) {
      const T tie = std::ldexp(static_cast<T>(i), unit - 1);
      values.insert(values.end(),
                    {tie, std::nextafter(tie, T{0}), std::nextafter(tie, T{1})});
    }
  }
  for (const double around : {65504.0, 65519.999, 65520.0, 65536.0, 3.3895314e38, 3.4e38})
    values.push_back(static_cast<T>(around));
  for (int i = 0; i < 5000; ++i) {
    T value;
    const uint64_t bits = draws.Bits();
    std::memcpy(&value, &bits, sizeof(value));
    if (!std::isnan(value)) values.push_back(value);
  }
  const size_t num_positive = values.size();
  for (size_t i = 0; i < num_positive; ++i) values.push_back(-values[i]);
  return values;
}

template <typename T>
void CheckFloats(Stored stored) {
  Draws draws(4);
  const StoredType type{stored, sizeof(T)};
  const std::vector<T> values = Floats<T>(draws);
  for (const Dtype dtype : kFloatDtypes) {
    CAPTURE(DtypeName(dtype));
    const auto items = Convert(type, dtype, BytesOf(values));
    int64_t num_wrong = 0;
    for (size_t i = 0; i < values.size(); ++i)
      num_wrong += items[i] != FloatBits(static_cast<long double>(values[i]), dtype);
    CHECK(num_wrong == 0);
  }
}

TEST_CASE("float32 and float64 are rounded once, and by way of float32 to 16 bits") {
  CheckFloats<float>(Stored::kFloat32);
  CheckFloats<double>(Stored::kFloat64);
}

// True if bits of a dtype are those of a NaN.
bool IsNan(uint64_t bits, Dtype dtype) {
  switch (dtype) {
    case Dtype::kFloat16:
      return (bits & 0x7FFF) > 0x7C00;
    case Dtype::kBFloat16:
      return (bits & 0x7FFF) > 0x7F80;
    case Dtype::kFloat32:
      return (bits & 0x7FFFFFFF) > 0x7F800000;
    default:
      return (bits & 0x7FFFFFFFFFFFFFFF) > 0x7FF0000000000000;
  }
}

TEST_CASE("every NaN stays one") {
  const std::vector<uint32_t> nans32 = {0x7FC00000, 0x7F800001, 0xFF800001, 0x7FBFFFFF,
                                        0xFFFFFFFF, 0x7F80FFFF, 0x7FFFFFFF};
  const std::vector<uint64_t> nans64 = {0x7FF8000000000000, 0x7FF0000000000001,
                                        0xFFF0000000000001, 0xFFFFFFFFFFFFFFFF,
                                        0x7FF00000FFFFFFFF};
  const std::vector<uint16_t> nans16 = {0x7E00, 0x7C01, 0xFC01, 0xFFFF};
  for (const Dtype dtype : kFloatDtypes) {
    for (const auto& items : {Convert({Stored::kFloat32, 4}, dtype, BytesOf(nans32)),
                              Convert({Stored::kFloat64, 8}, dtype, BytesOf(nans64)),
                              Convert({Stored::kFloat16, 2}, dtype, BytesOf(nans16))}) {
      for (const uint64_t item : items) CHECK(IsNan(item, dtype));
    }
  }
}

TEST_CASE("floats of one's own format keep every bit") {
  Draws draws(5);
  std::vector<uint64_t> bits64 = {0x7FF0000000000001, 0xFFF8000000000007, 0, 1ULL << 63};
  std::vector<uint32_t> bits32 = {0x7F800001, 0xFFC00007, 0, 1U << 31};
  for (int i = 0; i < 1000; ++i) {
    bits64.push_back(draws.Bits());
    bits32.push_back(static_cast<uint32_t>(draws.Bits()));
  }
  CHECK(Convert({Stored::kFloat64, 8}, Dtype::kFloat64, BytesOf(bits64)) == bits64);
  CHECK(Convert({Stored::kFloat32, 4}, Dtype::kFloat32, BytesOf(bits32)) ==
        std::vector<uint64_t>(bits32.begin(), bits32.end()));
}

TEST_CASE("all patterns of float16, to every float and back") {
  std::vector<uint16_t> all(65536);
  for (size_t i = 0; i < all.size(); ++i) all[i] = static_cast<uint16_t>(i);
  const StoredType type{Stored::kFloat16, 2};
  CHECK(Convert(type, Dtype::kFloat16, BytesOf(all)) ==
        std::vector<uint64_t>(all.begin(), all.end()));
  int64_t num_wrong = 0;
  for (const Dtype dtype : {Dtype::kBFloat16, Dtype::kFloat32, Dtype::kFloat64}) {
    const auto items = Convert(type, dtype, BytesOf(all));
    for (const uint16_t bits : all) {
      const long double value = ValueOfFloat16(bits);
      num_wrong += std::isnan(value) ? !IsNan(items[bits], dtype)
                                     : items[bits] != FloatBits(value, dtype);
    }
  }
  for (const uint16_t bits : all) {
    const uint16_t back = Float16Bits(FloatOfFloat16(bits));
    num_wrong +=
        IsNan(bits, Dtype::kFloat16) ? !IsNan(back, Dtype::kFloat16) : back != bits;
  }
  CHECK(num_wrong == 0);
}

TEST_CASE("all patterns of bfloat16 come back from float32") {
  int64_t num_wrong = 0;
  for (uint32_t bits = 0; bits < 65536; ++bits) {
    const auto value = std::bit_cast<float>(bits << 16);
    const uint16_t back = BFloat16Bits(value);
    num_wrong += std::isnan(value) ? !IsNan(back, Dtype::kBFloat16) : back != bits;
  }
  CHECK(num_wrong == 0);
}

// The nearest double of unscaled * 10^-scale, by the C library's reading of its digits.
double NearestDouble(Int128 unscaled, int32_t scale) {
  return std::strtod((Digits(unscaled) + "e-" + std::to_string(scale)).c_str(), nullptr);
}

TEST_CASE("decimals become the nearest double, and that the narrower floats") {
  Draws draws(6);
  for (const auto& [stored, num_bytes] : kDecimals) {
    const std::vector<Int128> numbers =
        Numbers(draws, Limits(8 * num_bytes - (num_bytes == 16), true));
    for (const int32_t scale : {0, 1, 2, 9, 18, 22, 23, 37, 38}) {
      const StoredType type{stored, num_bytes, scale};
      CAPTURE(num_bytes);
      CAPTURE(scale);
      for (const Dtype dtype : kFloatDtypes) {
        const auto items = Convert(type, dtype, StoredIntegers(type, numbers));
        int64_t num_wrong = 0;
        for (size_t i = 0; i < numbers.size(); ++i) {
          const double nearest = NearestDouble(numbers[i], scale);
          num_wrong += items[i] != FloatBits(nearest, dtype);
        }
        CHECK(num_wrong == 0);
      }
    }
  }
}

TEST_CASE("decimals of 16 bytes at their limits") {
  Int128 limit = 1;
  for (int i = 0; i < 38; ++i) limit *= 10;
  const Int128 least = static_cast<Int128>(UInt128{1} << 127);
  for (const Stored stored : {Stored::kDecimalBytes, Stored::kDecimal128}) {
    const StoredType type{stored, 16, 38};
    const auto items = Convert(type, Dtype::kFloat64,
                               StoredIntegers(type, {limit - 1, 1 - limit, least, -1}));
    const std::vector<double> expected = {1.0, -1.0, -1.7014118346046923, -1e-38};
    for (size_t i = 0; i < expected.size(); ++i)
      CHECK(std::bit_cast<double>(items[i]) == expected[i]);
    CHECK(Throws(ErrorKind::kCast,
                 [&] { Convert(type, Dtype::kInt64, StoredIntegers(type, {least})); }));
  }
}

TEST_CASE("decimals as int64 are unscaled, and the first too large is named") {
  Draws draws(7);
  const auto limits = LimitsOf(Dtype::kInt64);
  for (const auto& [stored, num_bytes] : kDecimals) {
    const StoredType type{stored, num_bytes, kScale};
    CAPTURE(num_bytes);
    const auto numbers = Numbers(draws, Limits(8 * num_bytes - (num_bytes == 16), true));
    const std::vector<Int128> fitting = Within(numbers, limits);
    const auto items = Convert(type, Dtype::kInt64, StoredIntegers(type, fitting));
    int64_t num_wrong = 0;
    for (size_t i = 0; i < fitting.size(); ++i)
      num_wrong += static_cast<int64_t>(items[i]) != static_cast<int64_t>(fitting[i]);
    CHECK(num_wrong == 0);
    for (const Int128 misfit : {limits.first - 1, limits.second + 1, limits.second * 7}) {
      if (num_bytes <= 8) continue;
      const auto values = std::vector<Int128>{1, limits.second, misfit, limits.first * 2};
      const auto error =
          Caught([&] { Convert(type, Dtype::kInt64, StoredIntegers(type, values)); });
      REQUIRE(error);
      CHECK(error->kind() == ErrorKind::kCast);
      CHECK(std::string(error->what()).ends_with(" int64: " + Digits(misfit)));
    }
  }
}

constexpr int64_t kDayNanoseconds = 86'400'000'000'000;
constexpr int64_t kJulianDayOf1970 = 2'440'588;

ExactBuffer<uint8_t> StoredTimestamps(
    const std::vector<std::pair<int32_t, int64_t>>& timestamps) {
  ExactBuffer<uint8_t> bytes(12 * timestamps.size());
  for (size_t i = 0; i < timestamps.size(); ++i) {
    const auto& [day, of_day] = timestamps[i];
    std::memcpy(bytes.data() + 12 * i, &of_day, 8);
    std::memcpy(bytes.data() + 12 * i + 8, &day, 4);
  }
  return bytes;
}

TEST_CASE("INT96 counts nanoseconds since 1970, as far as int64 goes") {
  const StoredType type{Stored::kInt96, 12};
  Draws draws(8);
  std::vector<std::pair<int32_t, int64_t>> timestamps;
  std::vector<int64_t> expected = {0,
                                   -1,
                                   1,
                                   std::numeric_limits<int64_t>::max(),
                                   std::numeric_limits<int64_t>::min(),
                                   1'700'000'000'123'456'789};
  for (int i = 0; i < 1000; ++i) expected.push_back(static_cast<int64_t>(draws.Bits()));
  for (const int64_t nanoseconds : expected) {
    int64_t of_day = nanoseconds % kDayNanoseconds;
    int64_t day = nanoseconds / kDayNanoseconds;
    if (of_day < 0) of_day += kDayNanoseconds, --day;
    timestamps.emplace_back(static_cast<int32_t>(day + kJulianDayOf1970), of_day);
  }
  for (const Dtype dtype : DtypesOf(type)) {
    const auto items = Convert(type, dtype, StoredTimestamps(timestamps));
    for (size_t i = 0; i < expected.size(); ++i) {
      CHECK(items[i] == (dtype == Dtype::kInt64
                             ? static_cast<uint64_t>(expected[i])
                             : FloatBits(static_cast<long double>(expected[i]), dtype)));
    }
  }
  const auto [last_day, last_of_day] = timestamps[3];
  const auto [first_day, first_of_day] = timestamps[4];
  for (const auto& beyond : std::vector<std::pair<int32_t, int64_t>>{
           {last_day, last_of_day + 1},
           {first_day, first_of_day - 1},
           {last_day + 1, 0},
           {std::numeric_limits<int32_t>::max(), 0},
           {std::numeric_limits<int32_t>::min(), 0},
           {std::numeric_limits<int32_t>::max(), std::numeric_limits<int64_t>::max()}}) {
    for (const Dtype dtype : DtypesOf(type)) {
      const auto stored = [&] { return StoredTimestamps({{2'440'588, 0}, beyond}); };
      const auto error = Caught([&] { Convert(type, dtype, stored()); });
      REQUIRE(error.has_value() == (dtype == Dtype::kInt64));
      if (!error) continue;
      CHECK(error->kind() == ErrorKind::kCast);
      CHECK(Mentions(*error, std::to_string(beyond.first)));
    }
  }
}

TEST_CASE("bytes stay bytes") {
  Draws draws(9);
  const std::vector<uint8_t> stored = testing::RandomBytes(draws, 3 * 333);
  const auto items = Convert({Stored::kFixedBytes, 3}, Dtype::kUInt8, BytesOf(stored));
  CHECK(items == std::vector<uint64_t>(stored.begin(), stored.end()));
}

}  // namespace
}  // namespace torchparquet::kernels
