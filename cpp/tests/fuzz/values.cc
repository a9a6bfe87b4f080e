#include <algorithm>
#include <cstdint>
#include <cstring>
#include <iterator>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "exact_buffer.h"
#include "fuzz/inputs.h"
#include "fuzz/steps.h"
#include "fuzz/targets.h"
#include "kernels/encodings/byte_arrays.h"
#include "kernels/encodings/byte_stream_split.h"
#include "kernels/encodings/delta_binary_packed.h"
#include "kernels/values/conversion.h"

namespace torchparquet::testing {
namespace {

using kernels::Conversion;
using kernels::DeltaBinaryPackedReader;
using kernels::Dtype;
using kernels::Stored;
using kernels::StoredType;

template <typename T>
bool FuzzDelta(Draws& draws) {
  const int64_t num_values = RandomCount(draws);
  const Bytes bytes =
      Damaged(draws, DeltaInput(draws, RandomSteps<T>(draws, num_values)));
  const bool is_refused = Fails([&] {
    ExactBuffer<uint8_t> exact(bytes);
    DeltaBinaryPackedReader<T> reader(exact.span());
    if (reader.num_values() > 5000) return;
    reader.Skip(reader.num_values());
    Require(reader.Rest().size() <= exact.size(), "more bytes left than there were");
    DeltaBinaryPackedReader<T> same = reader;
    T more;
    Require(Fails([&] { reader.Skip(1); }) && Fails([&] { same.Read(&more, 1); }),
            "more values than the header says");
  });
  using Values = FixedValues<DeltaBinaryPackedReader<T>, T>;
  return CheckSteps<Values>(draws, num_values, bytes,
                            [](const auto& exact) {
                              return std::make_unique<DeltaBinaryPackedReader<T>>(exact);
                            }) ||
         is_refused;
}

bool FuzzByteStreamSplit(Draws& draws) {
  const auto width = static_cast<int>(draws.OneIn(2) ? 1 << draws.Below(4)  //
                                                     : draws.Between(1, 20));
  const int64_t stride = RandomCount(draws);
  ExactBuffer<uint8_t> bytes(RandomBytes(draws, width * stride));
  const int64_t begin = draws.Between(0, stride);
  const int64_t num_values = draws.Between(0, stride - begin);
  ExactBuffer<uint8_t> out(static_cast<size_t>(num_values * width));
  kernels::DecodeByteStreamSplit(
      {.first = bytes.data() + begin, .stride = stride, .width = width}, num_values,
      out.data());
  for (int64_t i = 0; i < num_values * width; ++i) {
    const uint8_t stored = bytes.data()[i % width * stride + begin + i / width];
    Require(out.data()[i] == stored, "a byte of another value");
  }
  return false;
}

// The header's count and the wanted count may differ from the page's.
int64_t ClaimedValues(Draws& draws, int64_t num_values) {
  return draws.OneIn(8) ? draws.Below(20'000) : num_values;
}
int64_t WantedValues(Draws& draws, int64_t num_values) {
  return draws.OneIn(8) ? num_values + 2 : num_values;
}

bool FuzzPlainByteArray(Draws& draws) {
  const int64_t num_values = RandomCount(draws);
  const Bytes bytes = PlainByteArrayInput(draws, num_values);
  return CheckSteps<ByteArrayValues>(
      draws, WantedValues(draws, num_values), bytes, [](const auto& exact) {
        return std::make_unique<kernels::PlainByteArrayReader>(exact);
      });
}

template <typename Reader>
bool FuzzDeltaByteArrays(Draws& draws, const Bytes& bytes, int64_t num_values) {
  const int64_t claimed = ClaimedValues(draws, num_values);
  return CheckSteps<ByteArrayValues>(
      draws, WantedValues(draws, num_values), bytes,
      [&](const auto& exact) { return std::make_unique<Reader>(exact, claimed); });
}

bool FuzzDeltaLength(Draws& draws) {
  const int64_t num_values = RandomCount(draws);
  const Bytes input = DeltaLengthInput(draws, num_values);
  return FuzzDeltaByteArrays<kernels::DeltaLengthByteArrayReader>(draws, input,
                                                                  num_values);
}

bool FuzzDeltaByteArray(Draws& draws) {
  const int64_t num_values = RandomCount(draws);
  const Bytes input = DeltaByteArrayInput(draws, num_values);
  return FuzzDeltaByteArrays<kernels::DeltaByteArrayReader>(draws, input, num_values);
}

// A form of values in any of its sizes.
StoredType RandomStoredType(Draws& draws) {
  constexpr StoredType kTypes[] = {
      {Stored::kBool, 1},         {Stored::kInt8, 4},        {Stored::kUInt8, 4},
      {Stored::kInt16, 4},        {Stored::kUInt16, 4},      {Stored::kInt32, 4},
      {Stored::kUInt32, 4},       {Stored::kInt64, 8},       {Stored::kUInt64, 8},
      {Stored::kInt96, 12},       {Stored::kFloat16, 2},     {Stored::kFloat32, 4},
      {Stored::kFloat64, 8},      {Stored::kDecimal32, 4},   {Stored::kDecimal64, 8},
      {Stored::kDecimalBytes, 5}, {Stored::kDecimal128, 16}, {Stored::kFixedBytes, 9}};
  StoredType type = kTypes[draws.Below(std::ssize(kTypes))];
  if (type.stored == Stored::kDecimalBytes) {
    type.num_bytes = static_cast<int32_t>(draws.Between(1, 16));
  }
  type.scale = static_cast<int32_t>(draws.Below(39));
  return type;
}

// An integer column's value, where it is one of its type, by its bytes.
struct IntegerType {
  bool is_signed;
  int bits;  // of values; stored in 32, or 64
};

std::optional<IntegerType> IntegerTypeOf(Stored stored) {
  switch (stored) {
    case Stored::kInt8:
      return IntegerType{true, 8};
    case Stored::kUInt8:
      return IntegerType{false, 8};
    case Stored::kInt16:
      return IntegerType{true, 16};
    case Stored::kUInt16:
      return IntegerType{false, 16};
    case Stored::kInt32:
      return IntegerType{true, 32};
    case Stored::kUInt32:
      return IntegerType{false, 32};
    case Stored::kInt64:
      return IntegerType{true, 64};
    case Stored::kUInt64:
      return IntegerType{false, 64};
    default:
      return std::nullopt;
  }
}

std::optional<IntegerType> IntegerTypeOf(Dtype dtype) {
  constexpr Stored kSame[] = {Stored::kInt8,   Stored::kUInt8, Stored::kInt16,
                              Stored::kUInt16, Stored::kInt32, Stored::kUInt32,
                              Stored::kInt64,  Stored::kUInt64};
  if (dtype < Dtype::kInt8 || dtype > Dtype::kUInt64) return std::nullopt;
  return IntegerTypeOf(
      kSame[static_cast<size_t>(dtype) - static_cast<size_t>(Dtype::kInt8)]);
}

__extension__ using Wide = __int128;

Wide IntegerOf(const uint8_t* bytes, int64_t num_bytes, bool is_signed) {
  uint64_t bits = 0;
  for (int64_t i = 0; i < num_bytes; ++i) bits |= uint64_t{bytes[i]} << (8 * i);
  const Wide one = 1;
  const bool is_negative = is_signed && (bits >> (8 * num_bytes - 1) & 1) != 0;
  return static_cast<Wide>(bits) - (is_negative ? one << (8 * num_bytes) : 0);
}

bool Holds(const IntegerType& type, Wide value) {
  const Wide one = 1;
  const Wide least = type.is_signed ? -(one << (type.bits - 1)) : 0;
  return value >= least && value - least < one << type.bits;
}

// The number of a small integer stored in 32 bits with either extension, and nothing if
// the other bits are no extension.
std::optional<Wide> SmallInteger(const IntegerType& type, Wide stored) {
  const Wide one = 1;
  if (stored < -(one << (type.bits - 1)) || stored >= one << type.bits) return {};
  const Wide value = stored & ((one << type.bits) - 1);
  return Holds(type, value) ? value : value - (one << type.bits);
}

// Integers to integers, against arithmetic that is wide enough.
void CheckIntegers(const StoredType& type, Dtype dtype, ExactBuffer<uint8_t>& in,
                   ExactBuffer<uint8_t>& out, bool is_refused) {
  const auto from = IntegerTypeOf(type.stored);
  const auto to = IntegerTypeOf(dtype);
  if (!from || !to) return;
  const int64_t out_bytes = to->bits / 8;
  bool fits = true;
  for (int64_t i = 0; i < static_cast<int64_t>(in.size()) / type.num_bytes; ++i) {
    const bool is_small = from->bits < 32;
    const Wide stored = IntegerOf(in.data() + i * type.num_bytes, type.num_bytes,
                                  is_small || from->is_signed);
    const auto value = is_small ? SmallInteger(*from, stored) : std::optional(stored);
    fits &= value && Holds(*to, *value);
    Require(is_refused ||
                IntegerOf(out.data() + i * out_bytes, out_bytes, to->is_signed) == value,
            "an integer of another value");
  }
  Require(fits != is_refused,
          "an integer that fits is refused, or one that does not is not");
}

bool FuzzConversion(Draws& draws) {
  const StoredType type = RandomStoredType(draws);
  const auto dtype = static_cast<Dtype>(draws.Below(kernels::kNumDtypes));
  const auto conversion = Conversion::Find(type, dtype);
  if (!conversion) return false;
  const int64_t num_values = draws.Below(40);
  Bytes stored = RandomBytes(draws, num_values * type.num_bytes);
  const int64_t legal = type.stored == Stored::kBool ? 2 : 256;
  // Small numbers of either sign fit most dtypes.
  const int64_t kept_bytes = draws.OneIn(2) ? draws.Between(0, 4) : type.num_bytes;
  for (size_t i = 0; i < stored.size(); ++i) {
    const auto place = static_cast<int64_t>(i) % type.num_bytes;
    stored[i] = static_cast<uint8_t>(place < kept_bytes ? stored[i] % legal : 0);
  }
  ExactBuffer<uint8_t> in(stored);
  const int64_t cell = type.stored == Stored::kFixedBytes ? type.num_bytes : 1;
  const int64_t out_bytes = cell * conversion->out_bytes();
  ExactBuffer<uint8_t> out(static_cast<size_t>(num_values * out_bytes));
  const bool is_refused = Fails(
      [&] { conversion->Convert(in.data(), num_values, out.data()); }, ErrorKind::kCast);
  CheckIntegers(type, dtype, in, out, is_refused);
  bool one_is_refused = false;
  for (int64_t i = 0; i < num_values; ++i) {
    ExactBuffer<uint8_t> one(static_cast<size_t>(out_bytes));
    const uint8_t* value = in.data() + i * type.num_bytes;
    one_is_refused |=
        Fails([&] { conversion->Convert(value, 1, one.data()); }, ErrorKind::kCast);
    Require(is_refused ||
                std::memcmp(one.data(), out.data() + i * out_bytes, one.size()) == 0,
            "another value when it is alone");
  }
  Require(one_is_refused == is_refused, "refused only together, or only alone");
  return is_refused;
}

}  // namespace

std::vector<FuzzTarget> ValueTargets() {
  return {
      {"delta_binary_packed uint32", &FuzzDelta<uint32_t>},
      {"delta_binary_packed uint64", &FuzzDelta<uint64_t>},
      {"byte_stream_split", &FuzzByteStreamSplit},
      {"plain_byte_array", &FuzzPlainByteArray},
      {"delta_length_byte_array", &FuzzDeltaLength},
      {"delta_byte_array", &FuzzDeltaByteArray},
      {"conversion", &FuzzConversion},
  };
}

}  // namespace torchparquet::testing
