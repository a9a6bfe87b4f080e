#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string_view>
#include <vector>

#include "kernels/item_types.h"

namespace torchparquet::kernels {

// The meaning of a stored value, which decides how its bytes are read.
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
  kFixedBytes,    // FIXED_LEN_BYTE_ARRAY: a cell of num_bytes items of uint8
  kNull,          // no value, so that any number may stand for it
  kBytes,         // BYTE_ARRAY of any length: it has no conversion
};

// A form of stored values.
struct StoredType {
  Stored stored = Stored::kInt32;
  int32_t num_bytes = 4;         // of a value
  int32_t scale = 0;             // of decimals: digits after the point
  int64_t nanoseconds = 0;       // a 1, of points in time and durations; 0 for others
  int64_t unit_nanoseconds = 0;  // of the output, if it is another

  bool operator==(const StoredType&) const = default;
};

// The dtypes of tensors.
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

class Transform;

// Converts stored bytes to bit patterns of a dtype.
class Conversion {
 public:
  // Returns nothing if values would lose their meaning: floats to integers, numbers to
  // bool. Integers become other integers if they fit. Any number becomes a float, rounded
  // as by torch's Tensor.to. Decimals become floats or, as int64, their unscaled value.
  // With a unit, values are points in time or durations and become int64 of that unit,
  // exactly, or floats. With a transform, values go through it on the way, if it takes
  // them and what it makes becomes the dtype.
  static std::optional<Conversion> Find(
      const StoredType& type, Dtype dtype, int64_t unit_nanoseconds = 0,
      std::shared_ptr<const Transform> transform = nullptr);

  int64_t stored_bytes() const { return type_.num_bytes; }
  int64_t out_bytes() const { return out_bytes_; }
  // True if a value becomes several items.
  bool is_cell() const { return type_.stored == Stored::kFixedBytes; }
  // True if the output bytes are the stored bytes.
  bool is_copy() const { return function_ == nullptr && transformed_ == nullptr; }

  // True if a value may be refused, as Convert tells.
  bool may_refuse() const { return may_refuse_; }

  // Converts `num_values` values from `in`, which need not be aligned, to `out`. Throws
  // Error(kCorruptFile) for a value that its logical type cannot have, and Error(kCast),
  // naming the value and its number, for one that does not fit the dtype.
  void Convert(const uint8_t* in, int64_t num_values, uint8_t* out) const;

 private:
  using Function = void (*)(const StoredType& type, const uint8_t* in, int64_t num_values,
                            uint8_t* out);
  Conversion(const StoredType& type, int64_t out_bytes, Function function,
             bool may_refuse)
      : type_(type),
        out_bytes_(out_bytes),
        function_(function),
        may_refuse_(may_refuse) {}

  struct Transformed;  // to 64 bits, transformed, to the dtype

  StoredType type_;
  int64_t out_bytes_;
  Function function_;
  bool may_refuse_;
  std::shared_ptr<const Transformed> transformed_;  // null: `function_` does it all
};

// The dtypes that the stored type converts to.
std::vector<Dtype> DtypesOf(const StoredType& type);

}  // namespace torchparquet::kernels
