#pragma once

#include <cstdint>
#include <utility>
#include <vector>

#include "draws.h"

namespace torchparquet::testing {

// Writes Thrift's compact protocol, from its specification alone.
using Bytes = std::vector<uint8_t>;

namespace compact {

constexpr int kTrue = 1;
constexpr int kFalse = 2;
constexpr int kByte = 3;
constexpr int kI16 = 4;
constexpr int kI32 = 5;
constexpr int kI64 = 6;
constexpr int kDouble = 7;
constexpr int kBinary = 8;
constexpr int kList = 9;
constexpr int kSet = 10;
constexpr int kMap = 11;
constexpr int kStruct = 12;
constexpr int kUuid = 13;

inline void Append(Bytes* bytes, const Bytes& more) {
  bytes->insert(bytes->end(), more.begin(), more.end());
}

inline Bytes Varint(uint64_t value) {
  Bytes bytes;
  for (; value > 127; value /= 128) {
    bytes.push_back(static_cast<uint8_t>(value % 128 + 128));
  }
  bytes.push_back(static_cast<uint8_t>(value));
  return bytes;
}

// 0, -1, 1, -2, 2 become 0, 1, 2, 3, 4.
inline Bytes Zigzag(int64_t value) {
  if (value >= 0) return Varint(2 * static_cast<uint64_t>(value));
  return Varint(2 * static_cast<uint64_t>(-(value + 1)) + 1);
}

struct Field {
  int64_t id = 0;
  int type = 0;
  Bytes value = {};
};

inline Field I32(int64_t id, int64_t value) { return {id, kI32, Zigzag(value)}; }
inline Field Bool(int64_t id, bool value) { return {id, value ? kTrue : kFalse}; }

// Field numbers are told by their step from the last one where that is 1 to 15, unless
// `draws` has it otherwise.
inline Bytes Struct(const std::vector<Field>& fields, Draws* draws = nullptr) {
  Bytes bytes;
  int64_t last_id = 0;
  for (const Field& field : fields) {
    const int64_t step = field.id - last_id;
    const bool is_long = step < 1 || step > 15 || (draws != nullptr && draws->OneIn(5));
    bytes.push_back(static_cast<uint8_t>((is_long ? 0 : step * 16) + field.type));
    if (is_long) Append(&bytes, Zigzag(field.id));
    Append(&bytes, field.value);
    last_id = field.id;
  }
  bytes.push_back(0);
  return bytes;
}

inline Field StructField(int64_t id, const std::vector<Field>& fields,
                         Draws* draws = nullptr) {
  return {id, kStruct, Struct(fields, draws)};
}

// The head of a list or set; up to 14 elements fit the short form.
inline Bytes ListHead(int element_type, uint64_t size, bool short_form) {
  const auto type = static_cast<uint64_t>(element_type);
  if (short_form) return {static_cast<uint8_t>(size * 16 + type)};
  Bytes bytes{static_cast<uint8_t>(0xF0 + type)};
  Append(&bytes, Varint(size));
  return bytes;
}

// A value of a type as it stands within a list, set or map, nested at most `depth` deep.
inline Bytes RandomElement(Draws& draws, int type, int depth);

inline int RandomType(Draws& draws, int depth) {
  return static_cast<int>(depth > 0 ? draws.Between(kTrue, kUuid)
                                    : draws.Between(kTrue, kBinary));
}

inline Field RandomField(Draws& draws, int64_t id, int depth) {
  Field field{id, RandomType(draws, depth)};
  // A boolean field is all in its type.
  if (field.type > kFalse) field.value = RandomElement(draws, field.type, depth);
  return field;
}

inline Bytes RandomInteger(Draws& draws, int bits) {
  return Zigzag(static_cast<int64_t>(draws.Bits()) >> draws.Between(64 - bits, 63));
}

inline Bytes RandomBinary(Draws& draws) {
  const int64_t size = draws.OneIn(20) ? draws.Below(400) : draws.Below(6);
  Bytes bytes = Varint(static_cast<uint64_t>(size));
  Append(&bytes, RandomBytes(draws, size));
  return bytes;
}

inline Bytes RandomList(Draws& draws, int depth) {
  const int element_type = RandomType(draws, depth - 1);
  const int64_t size = draws.Below(draws.OneIn(4) ? 40 : 4);
  Bytes bytes =
      ListHead(element_type, static_cast<uint64_t>(size), size < 15 && !draws.OneIn(4));
  for (int64_t i = 0; i < size; ++i) {
    Append(&bytes, RandomElement(draws, element_type, depth - 1));
  }
  return bytes;
}

inline Bytes RandomMap(Draws& draws, int depth) {
  const int64_t size = draws.Below(4);
  Bytes bytes = Varint(static_cast<uint64_t>(size));
  if (size == 0) return bytes;
  const int key_type = RandomType(draws, depth - 1);
  const int value_type = RandomType(draws, depth - 1);
  bytes.push_back(static_cast<uint8_t>(key_type * 16 + value_type));
  for (int64_t i = 0; i < size; ++i) {
    Append(&bytes, RandomElement(draws, key_type, depth - 1));
    Append(&bytes, RandomElement(draws, value_type, depth - 1));
  }
  return bytes;
}

inline Bytes RandomStruct(Draws& draws, int depth) {
  std::vector<Field> fields;
  int64_t id = 0;
  for (int64_t left = draws.Below(4); left > 0; --left) {
    id += draws.OneIn(3) ? draws.Between(1, 1000) : 1;
    fields.push_back(RandomField(draws, id, depth - 1));
  }
  return Struct(fields, &draws);
}

inline Bytes RandomElement(Draws& draws, int type, int depth) {
  switch (type) {
    case kTrue:
    case kFalse:
      return {static_cast<uint8_t>(draws.Between(1, 2))};
    case kByte:
      return {static_cast<uint8_t>(draws.Bits())};
    case kI16:
      return RandomInteger(draws, 16);
    case kI32:
      return RandomInteger(draws, 32);
    case kI64:
      return RandomInteger(draws, 64);
    case kDouble:
      return RandomBytes(draws, 8);
    case kUuid:
      return RandomBytes(draws, 16);
    case kBinary:
      return RandomBinary(draws);
    case kList:
    case kSet:
      return RandomList(draws, depth);
    case kMap:
      return RandomMap(draws, depth);
    default:
      return RandomStruct(draws, depth);
  }
}

}  // namespace compact
}  // namespace torchparquet::testing
