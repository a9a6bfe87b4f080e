#include "kernels/values/conversion.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <limits>
#include <span>
#include <string>
#include <tuple>
#include <type_traits>
#include <utility>

#include "base/errors.h"
#include "kernels/values/decimal.h"
#include "kernels/values/float_formats.h"
#include "kernels/values/transform.h"

namespace torchparquet::kernels {
namespace {

// Stand for the 16-bit floats among the types of output values.
struct Half {
  uint16_t bits;
};
struct BHalf {
  uint16_t bits;
};

constexpr std::array<std::string_view, kNumDtypes> kNames = {
    "bool",  "int8",   "uint8",   "int16",    "uint16",  "int32",  "uint32",
    "int64", "uint64", "float16", "bfloat16", "float32", "float64"};

template <typename T>
T Load(const uint8_t* in) {
  T value;
  std::memcpy(&value, in, sizeof(value));
  return value;
}

template <typename T>
void Store(T value, int64_t index, uint8_t* out) {
  std::memcpy(out + index * static_cast<int64_t>(sizeof(T)), &value, sizeof(value));
}

template <typename Out>
constexpr bool kIsFloat = std::is_floating_point_v<Out> || std::is_same_v<Out, Half> ||
                          std::is_same_v<Out, BHalf>;

template <typename Out, typename Value>
Out ToFloat(Value value) {
  if constexpr (std::is_same_v<Out, Half>) {
    return Half{Float16Bits(static_cast<float>(value))};
  } else if constexpr (std::is_same_v<Out, BHalf>) {
    return BHalf{BFloat16Bits(static_cast<float>(value))};
  } else {
    return static_cast<Out>(value);
  }
}

// The name of an output type, for messages.
template <typename Out>
std::string TypeName() {
  const std::string bits = std::to_string(8 * sizeof(Out));
  return (std::is_signed_v<Out> ? "int" : "uint") + bits;
}

template <typename Out>
Error DoesNotFit(Int128 value) {
  const char* dtype = value == static_cast<int64_t>(value) ? "int64" : "float64";
  return Error(ErrorKind::kCast, "Column(..., dtype=\"" + std::string(dtype) +
                                     "\") reads a value that does not fit " +
                                     TypeName<Out>() + ": " + DigitsOf(value));
}

template <typename Out, typename Value>
constexpr bool Fits(Value value) {
  if constexpr (kIsFloat<Out>) {
    return true;
  } else {
    return std::in_range<Out>(value);
  }
}

template <typename Out, typename Value>
Out Cast(Value value) {
  if constexpr (kIsFloat<Out>) {
    return ToFloat<Out>(value);
  } else {
    return static_cast<Out>(value);
  }
}

// True if the bits beyond Logical's extend a number of as many bits, signed or not:
// writers differ in how they store UINT_8 and UINT_16.
template <typename Logical, typename Physical>
bool IsExtended(Physical stored) {
  if constexpr (sizeof(Physical) == sizeof(Logical)) {
    return true;
  } else {
    const auto high = stored >> (8 * sizeof(Logical) - 1);
    return high >= -1 && high <= 1;
  }
}

// Integers. `Physical` is the stored type; `Logical` bounds the values.
template <typename Physical, typename Logical, typename Out>
void ConvertInteger(const StoredType&, const uint8_t* in, int64_t num_values,
                    uint8_t* out) {
  const auto load = [in](int64_t i) {
    return Load<Physical>(in + i * static_cast<int64_t>(sizeof(Physical)));
  };
  // Both are checked once, after the loop, so the loop has no branch.
  bool illegal = false;
  bool unfit = false;
  for (int64_t i = 0; i < num_values; ++i) {
    const Physical stored = load(i);
    const auto value = static_cast<Logical>(stored);
    illegal |= !IsExtended<Logical>(stored);
    unfit |= !Fits<Out>(value);
    Store(Cast<Out>(value), i, out);
  }
  if (illegal) {
    throw CorruptFile("stored value does not fit the column's type of ",
                      8 * sizeof(Logical), " bits");
  }
  for (int64_t i = 0; unfit && i < num_values; ++i) {
    const auto value = static_cast<Logical>(load(i));
    if (!Fits<Out>(value)) throw DoesNotFit<Out>(value).WithValue(i);
  }
}

template <typename Out>
void ConvertBool(const StoredType&, const uint8_t* in, int64_t num_values, uint8_t* out) {
  for (int64_t i = 0; i < num_values; ++i) Store(Cast<Out>(in[i]), i, out);
}

template <typename Value>
auto LoadFloat(const uint8_t* in) {
  if constexpr (std::is_same_v<Value, Half>) {
    return FloatOfFloat16(Load<uint16_t>(in));
  } else {
    return Load<Value>(in);
  }
}

template <typename Value, typename Out>
void ConvertFloat(const StoredType&, const uint8_t* in, int64_t num_values,
                  uint8_t* out) {
  if constexpr (std::is_same_v<Value, float> && std::is_same_v<Out, Half>) {
    return Float16s(in, num_values, out);
  }
  constexpr auto kBytes = static_cast<int64_t>(sizeof(Value));
  for (int64_t i = 0; i < num_values; ++i) {
    Store(ToFloat<Out>(LoadFloat<Value>(in + i * kBytes)), i, out);
  }
}

// Nanoseconds since 1970. Source: parquet-format's note on INT96 as written by parquet-mr
// and Impala: nanoseconds of the day, then the Julian day.
Int128 Int96Nanoseconds(const uint8_t* in) {
  constexpr int64_t kJulianDayOf1970 = 2'440'588;
  constexpr Int128 kDayNanoseconds = 86'400'000'000'000;
  const auto day = int64_t{Load<int32_t>(in + 8)} - kJulianDayOf1970;
  return day * kDayNanoseconds + Load<int64_t>(in);
}

template <typename Out>
void ConvertInt96(const StoredType&, const uint8_t* in, int64_t num_values,
                  uint8_t* out) {
  for (int64_t i = 0; i < num_values; ++i) {
    const Int128 nanoseconds = Int96Nanoseconds(in + 12 * i);
    if constexpr (!kIsFloat<Out>) {
      if (nanoseconds != static_cast<int64_t>(nanoseconds)) {
        throw Error(
            ErrorKind::kCast,
            Text("timestamp does not fit int64 nanoseconds since 1970; read the "
                 "column with Column(..., unit=\"us\") or dtype=\"float64\": Julian "
                 "day ",
                 Load<int32_t>(in + 12 * i + 8)))
            .WithValue(i);
      }
    }
    // The compiler's function for 128 bits is slow, and rarely needed.
    const auto narrow = static_cast<int64_t>(nanoseconds);
    Store(nanoseconds == narrow ? Cast<Out>(narrow) : Cast<Out>(nanoseconds), i, out);
  }
}

Int128 LoadBigEndian(const uint8_t* in, int32_t num_bytes) {
  // The sign of the first byte fills the bytes that are not stored.
  auto value = static_cast<UInt128>(static_cast<Int128>(static_cast<int8_t>(in[0])));
  for (int32_t i = 1; i < num_bytes; ++i) value = value << 8 | in[i];
  return static_cast<Int128>(value);
}

// A time, or a decimal without its scale.
template <Stored kStored>
Int128 LoadWide(const uint8_t* in, int32_t num_bytes) {
  if constexpr (kStored == Stored::kInt32 || kStored == Stored::kDecimal32) {
    return Load<int32_t>(in);
  } else if constexpr (kStored == Stored::kInt64 || kStored == Stored::kDecimal64) {
    return Load<int64_t>(in);
  } else if constexpr (kStored == Stored::kInt96) {
    return Int96Nanoseconds(in);
  } else if constexpr (kStored == Stored::kDecimalBytes) {
    return LoadBigEndian(in, num_bytes);
  } else {
    return Load<Int128>(in);
  }
}

// Points in time and durations in another unit. `type` has the units' ratio.
template <Stored kStored, typename Out>
void ConvertTime(const StoredType& type, const uint8_t* in, int64_t num_values,
                 uint8_t* out) {
  const Int128 factor = std::max<int64_t>(type.nanoseconds / type.unit_nanoseconds, 1);
  const Int128 divisor = std::max<int64_t>(type.unit_nanoseconds / type.nanoseconds, 1);
  for (int64_t i = 0; i < num_values; ++i) {
    const Int128 value =
        LoadWide<kStored>(in + i * type.num_bytes, type.num_bytes) * factor;
    if constexpr (kIsFloat<Out>) {
      // A remainder below the divisor, at most a day, is exact.
      const Int128 quotient = value / divisor;
      const auto whole = static_cast<double>(quotient);
      const double rest =
          static_cast<double>(value % divisor) / static_cast<double>(divisor);
      Store(ToFloat<Out>(whole + rest), i, out);
    } else {
      if (value % divisor != 0) {
        throw Error(
            ErrorKind::kCast,
            "time is no whole number of the unit that Column(..., unit=...) says; "
            "a finer unit or dtype=\"float64\" reads it: " +
                DigitsOf(value) + " / " + DigitsOf(divisor))
            .WithValue(i);
      }
      const Int128 quotient = value / divisor;
      if (quotient != static_cast<Out>(quotient))
        throw DoesNotFit<Out>(quotient).WithValue(i);
      Store(static_cast<Out>(quotient), i, out);
    }
  }
}

template <Stored kStored, typename Out>
void ConvertDecimal(const StoredType& type, const uint8_t* in, int64_t num_values,
                    uint8_t* out) {
  for (int64_t i = 0; i < num_values; ++i) {
    const Int128 unscaled = LoadWide<kStored>(in + i * type.num_bytes, type.num_bytes);
    if constexpr (kIsFloat<Out>) {
      Store(ToFloat<Out>(NearestDouble(unscaled, type.scale)), i, out);
    } else {
      if (unscaled != static_cast<Out>(unscaled))
        throw DoesNotFit<Out>(unscaled).WithValue(i);
      Store(static_cast<Out>(unscaled), i, out);
    }
  }
}

using Function = void (*)(const StoredType&, const uint8_t*, int64_t, uint8_t*);

void CopyBytes(const StoredType& type, const uint8_t* in, int64_t num_values,
               uint8_t* out) {
  std::memcpy(out, in, static_cast<size_t>(num_values * type.num_bytes));
}

// True if values of the stored form keep their meaning in the output type.
template <Stored kStored, typename Out>
constexpr bool IsAllowed() {
  switch (kStored) {
    case Stored::kBool:
      return true;
    case Stored::kFixedBytes:
      return std::is_same_v<Out, uint8_t>;
    case Stored::kNull:
      return true;
    case Stored::kFloat16:
    case Stored::kFloat32:
    case Stored::kFloat64:
      return kIsFloat<Out>;
    case Stored::kInt96:
    case Stored::kDecimal32:
    case Stored::kDecimal64:
    case Stored::kDecimalBytes:
    case Stored::kDecimal128:
      return kIsFloat<Out> || std::is_same_v<Out, int64_t>;
    default:
      return !std::is_same_v<Out, bool>;
  }
}

// Integer forms stand side by side in the enumeration.
template <Stored kStored>
constexpr bool kIsInteger = kStored >= Stored::kInt8 && kStored <= Stored::kUInt64;

// How one stored form becomes one output type. Without a function it does not.
struct Entry {
  Function function = nullptr;
  bool is_copy = false;        // the output bytes are the stored bytes
  bool may_refuse = false;     // checks its values
  Function in_unit = nullptr;  // of times, in another unit
};

// How Stored::kInt8 and the forms after it are stored, and the type that bounds them.
using Integers = std::tuple<std::pair<int32_t, int8_t>, std::pair<int32_t, uint8_t>,
                            std::pair<int32_t, int16_t>, std::pair<int32_t, uint16_t>,
                            std::pair<int32_t, int32_t>, std::pair<uint32_t, uint32_t>,
                            std::pair<int64_t, int64_t>, std::pair<uint64_t, uint64_t>>;

template <Stored kStored, typename Out>
constexpr Entry IntegerEntry() {
  constexpr int kNumber = static_cast<int>(kStored) - static_cast<int>(Stored::kInt8);
  using Types = std::tuple_element_t<kNumber, Integers>;
  using Physical = typename Types::first_type;
  using Logical = typename Types::second_type;
  using Limits = std::numeric_limits<Logical>;
  constexpr bool kIsWhole = sizeof(Physical) == sizeof(Logical);
  return {
      .function = &ConvertInteger<Physical, Logical, Out>,
      .is_copy = kIsWhole && std::is_same_v<Logical, Out>,
      .may_refuse = !kIsWhole || !Fits<Out>(Limits::min()) || !Fits<Out>(Limits::max())};
}

template <Stored kStored, typename Out>
constexpr Entry EntryFor() {
  if constexpr (!IsAllowed<kStored, Out>()) {
    return {};
  } else if constexpr (kStored == Stored::kBool || kStored == Stored::kNull) {
    // Of no value for nulls.
    return {&ConvertBool<Out>, kStored == Stored::kBool && sizeof(Out) == 1, false};
  } else if constexpr (kStored == Stored::kFixedBytes) {
    return {&CopyBytes, true, false};
  } else if constexpr (kStored == Stored::kInt96) {
    return {&ConvertInt96<Out>, false, !kIsFloat<Out>};
  } else if constexpr (kStored == Stored::kFloat16) {
    return {&ConvertFloat<Half, Out>, std::is_same_v<Out, Half>, false};
  } else if constexpr (kStored == Stored::kFloat32) {
    return {&ConvertFloat<float, Out>, std::is_same_v<Out, float>, false};
  } else if constexpr (kStored == Stored::kFloat64) {
    return {&ConvertFloat<double, Out>, std::is_same_v<Out, double>, false};
  } else if constexpr (kIsInteger<kStored>) {
    return IntegerEntry<kStored, Out>();
  } else {
    const bool is_copy = kStored == Stored::kDecimal64 && !kIsFloat<Out>;
    return {&ConvertDecimal<kStored, Out>, is_copy, !kIsFloat<Out>};
  }
}

template <Stored kStored, typename Out>
constexpr Entry EntryWithUnits() {
  Entry entry = EntryFor<kStored, Out>();
  constexpr bool kIsTime =
      kStored == Stored::kInt32 || kStored == Stored::kInt64 || kStored == Stored::kInt96;
  if constexpr (kIsTime && (kIsFloat<Out> || std::is_same_v<Out, int64_t>)) {
    entry.in_unit = &ConvertTime<kStored, Out>;
  }
  return entry;
}

using Row = std::array<Entry, kNumDtypes>;

template <Stored kStored, typename... Outs>
constexpr Row MakeRowOf() {
  return {EntryWithUnits<kStored, Outs>()...};
}

// In the order of Dtype.
template <Stored kStored>
constexpr Row MakeRow() {
  return MakeRowOf<kStored, bool, int8_t, uint8_t, int16_t, uint16_t, int32_t, uint32_t,
                   int64_t, uint64_t, Half, BHalf, float, double>();
}

constexpr int kNumStored = static_cast<int>(Stored::kNull) + 1;

template <int... kStored>
constexpr std::array<Row, kNumStored> MakeTable(std::integer_sequence<int, kStored...>) {
  return {MakeRow<static_cast<Stored>(kStored)>()...};
}
constexpr auto kTable = MakeTable(std::make_integer_sequence<int, kNumStored>());

constexpr std::array<int64_t, kNumDtypes> kOutBytes = {1, 1, 1, 2, 2, 4, 4,
                                                       8, 8, 2, 2, 4, 8};

}  // namespace

std::string_view DtypeName(Dtype dtype) { return kNames[static_cast<size_t>(dtype)]; }

int64_t DtypeBytes(Dtype dtype) { return kOutBytes[static_cast<size_t>(dtype)]; }

std::optional<Dtype> DtypeOfName(std::string_view name) {
  for (int i = 0; i < kNumDtypes; ++i) {
    if (kNames[static_cast<size_t>(i)] == name) return static_cast<Dtype>(i);
  }
  return std::nullopt;
}

struct Conversion::Transformed {
  Conversion first;
  std::shared_ptr<const Transform> transform;
  Conversion last;

  // Block by block in the L1 cache.
  void Convert(const uint8_t* in, int64_t num_values, uint8_t* out) const {
    std::array<uint64_t, 512> block;
    auto* bytes = reinterpret_cast<uint8_t*>(block.data());
    int64_t done = 0;
    ReadParts(done, [&] {
      while (done < num_values) {
        const int64_t count = std::min(num_values - done, std::ssize(block));
        first.Convert(in + done * first.stored_bytes(), count, bytes);
        transform->Apply(std::span(block).first(static_cast<size_t>(count)));
        last.Convert(bytes, count, out + done * last.out_bytes());
        done += count;
      }
    });
  }
};

void Conversion::Convert(const uint8_t* in, int64_t num_values, uint8_t* out) const {
  if (num_values == 0) return;
  if (transformed_ != nullptr) {
    transformed_->Convert(in, num_values, out);
  } else if (function_ == nullptr) {
    CopyBytes(type_, in, num_values, out);
  } else {
    function_(type_, in, num_values, out);
  }
}

std::optional<Conversion> Conversion::Find(const StoredType& type, Dtype dtype,
                                           int64_t unit_nanoseconds,
                                           std::shared_ptr<const Transform> transform) {
  if (type.stored == Stored::kBytes) return std::nullopt;
  if (transform != nullptr && type.stored != Stored::kNull) {
    const bool is_unsigned = type.stored == Stored::kUInt64;
    const Dtype taken = !transform->is_hash() ? Dtype::kFloat64
                        : is_unsigned         ? Dtype::kUInt64
                                              : Dtype::kInt64;
    const auto first = Find(type, taken, unit_nanoseconds);
    const bool makes_integers = transform->makes_integers();
    const auto last = makes_integers
                          ? Find({.stored = Stored::kInt64, .num_bytes = 8}, dtype)
                          : Find({.stored = Stored::kFloat64, .num_bytes = 8}, dtype);
    if (!first || !last) return std::nullopt;
    Conversion whole = *first;
    whole.out_bytes_ = last->out_bytes();
    whole.transformed_ = std::make_shared<const Transformed>(
        Transformed{*first, std::move(transform), *last});
    return whole;
  }
  const auto column = static_cast<size_t>(dtype);
  const Entry& entry = kTable[static_cast<size_t>(type.stored)][column];
  if (unit_nanoseconds > 0 && type.stored != Stored::kNull &&
      type.nanoseconds != unit_nanoseconds) {
    if (type.nanoseconds == 0 || entry.in_unit == nullptr) return std::nullopt;
    StoredType scaled = type;
    scaled.unit_nanoseconds = unit_nanoseconds;
    return Conversion(scaled, kOutBytes[column], entry.in_unit, /*may_refuse=*/true);
  }
  if (entry.function == nullptr) return std::nullopt;
  return Conversion(type, kOutBytes[column], entry.is_copy ? nullptr : entry.function,
                    entry.may_refuse);
}

std::vector<Dtype> DtypesOf(const StoredType& type) {
  std::vector<Dtype> dtypes;
  for (int i = 0; i < kNumDtypes; ++i) {
    const auto dtype = static_cast<Dtype>(i);
    if (Conversion::Find(type, dtype)) dtypes.push_back(dtype);
  }
  return dtypes;
}

}  // namespace torchparquet::kernels
