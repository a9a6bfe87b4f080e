#pragma once

#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

namespace torchparquet::kernels {

// What a stored value stands for, and by that how its bytes are read.
enum class Stored : uint8_t {
  kBool,  // one byte, 0 or 1: how readers of BOOLEAN deliver its bits
  kInt8,  // INT32, as all integers of fewer bits than 64
  kUInt8,
  kInt16,
  kUInt16,
  kInt32,
  kUInt32,
  kInt64,
  kUInt64,
  kInt96,  // nanoseconds of the day and Julian day: a timestamp
  kFloat16,
  kFloat32,
  kFloat64,
  kDecimal32,     // INT32
  kDecimal64,     // INT64
  kDecimalBytes,  // FIXED_LEN_BYTE_ARRAY: two's complement, the highest byte first
  kDecimal128,    // 16 bytes, the lowest first: how readers of BYTE_ARRAY deliver it
  kFixedBytes,    // FIXED_LEN_BYTE_ARRAY as such: a cell of num_bytes items of uint8
  kBytes,         // BYTE_ARRAY as such, of any length: no conversion leads from it
};

// A form of stored values.
struct StoredType {
  Stored stored = Stored::kInt32;
  int32_t num_bytes = 4;  // of a value
  int32_t scale = 0;      // of decimals: digits behind the point

  bool operator==(const StoredType&) const = default;
};

// What tensors hold.
enum class Dtype : uint8_t {
  kBool,
  kInt8,
  kUInt8,
  kInt16,
  kUInt16,
  kInt32,
  kUInt32,
  kInt64,
  kUInt64,
  kFloat16,
  kBFloat16,
  kFloat32,
  kFloat64,
};
inline constexpr int kNumDtypes = 13;

std::string_view DtypeName(Dtype dtype);  // torch's
int64_t DtypeBytes(Dtype dtype);
std::optional<Dtype> DtypeOfName(std::string_view name);

// The way from stored bytes to the bit patterns of a dtype.
class Conversion {
 public:
  // Nothing where values would lose what they mean: floats to integers, numbers to
  // bool. Integers become other integers where they fit, and any number a float as
  // torch's Tensor.to rounds it. Decimals become floats or, as int64, their unscaled
  // value.
  static std::optional<Conversion> Find(const StoredType& type, Dtype dtype);

  int64_t stored_bytes() const { return type_.num_bytes; }
  int64_t out_bytes() const { return out_bytes_; }
  // Whether a value becomes several items.
  bool is_cell() const { return type_.stored == Stored::kFixedBytes; }
  // Whether stored bytes are output bytes.
  bool is_copy() const { return function_ == nullptr; }

  // Converts `num_values` values from `in`, which need not be aligned, to `out`.
  // Throws Error(kCorruptFile) where a value cannot be one of its logical type, and
  // Error(kCast), naming the value, where it does not fit the dtype.
  void Convert(const uint8_t* in, int64_t num_values, uint8_t* out) const;

 private:
  using Function = void (*)(const StoredType& type, const uint8_t* in, int64_t num_values,
                            uint8_t* out);
  Conversion(const StoredType& type, int64_t out_bytes, Function function)
      : type_(type), out_bytes_(out_bytes), function_(function) {}

  StoredType type_;
  int64_t out_bytes_;
  Function function_;
};

// The dtypes that a conversion leads to.
std::vector<Dtype> DtypesOf(const StoredType& type);

}  // namespace torchparquet::kernels
