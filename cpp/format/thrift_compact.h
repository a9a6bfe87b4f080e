#pragma once

#include <cstdint>
#include <exception>
#include <limits>
#include <span>
#include <string_view>

namespace torchparquet {

// Reads values of Thrift's compact protocol one after another, from bytes that may be
// damaged. Source: Thrift's compact protocol specification.
class ThriftCompactReader {
 public:
  class Failure : public std::exception {};
  // Thrown if a value continues after the given bytes.
  class Truncated : public Failure {};
  // Thrown for bytes that the protocol does not allow, or for another type than
  // requested.
  class Malformed : public Failure {};
  // Calls `read`, and returns whether it met no Failure.
  template <typename Read>
  static bool IsSound(Read read) {
    try {
      read();
      return true;
    } catch (const Failure&) {
      return false;
    }
  }

  explicit ThriftCompactReader(std::span<const uint8_t> bytes)
      : next_(bytes.data()), end_(bytes.data() + bytes.size()) {}

  // Calls `on_field(id, type)` for each field of a struct. It must read or skip the
  // value.
  template <typename OnField>
  void ReadStruct(OnField on_field) {
    int64_t id = 0;
    while (true) {
      const uint8_t head = TakeByte();
      const int type = head & 0x0F;
      if (type == kStop) return;
      const int step = head >> 4;
      id = step != 0 ? id + step : ReadInteger();
      if (id < 0 || id > std::numeric_limits<int16_t>::max()) throw Malformed{};
      on_field(id, type);
    }
  }

  // Reads the value of a struct field.
  template <typename OnField>
  void ReadStruct(int type, OnField on_field) {
    if (type != kStruct) throw Malformed{};
    ReadStruct(on_field);
  }

  // How the field of a struct with that id is read.
  template <typename Read>
  struct Field {
    int64_t id;
    Read read;  // read(type)
  };
  template <typename Read>
  static Field<Read> At(int64_t id, Read read) {
    return {id, read};
  }
  template <typename Number>
  auto I32(int64_t id, Number* out) {
    return At(id, [this, out](int type) { *out = ReadI32(type); });
  }
  template <typename Number>
  auto I64(int64_t id, Number* out) {
    return At(id, [this, out](int type) { *out = ReadI64(type); });
  }

  auto Binary(int64_t id, std::string_view* out) {
    return At(id, [this, out](int type) { *out = ReadBinary(type); });
  }
  // A list, whose elements `on_element(type)` reads or skips.
  template <typename OnElement>
  auto List(int64_t id, OnElement on_element) {
    return At(id, [this, on_element](int type) { ReadList(type, on_element); });
  }

  // Reads the value of a struct field as the field of that id says, or skips it.
  template <typename... Fields>
  void ReadField(int64_t id, int type, const Fields&... fields) {
    const bool is_read = ((fields.id == id && (fields.read(type), true)) || ...);
    if (!is_read) SkipField(type);
  }
  // Reads these fields of a struct, which is the value of a field or an element.
  template <typename... Fields>
  void ReadFields(int struct_type, const Fields&... fields) {
    ReadStruct(struct_type,
               [&](int64_t id, int type) { ReadField(id, type, fields...); });
  }
  // Reads these fields of a struct that stands by itself.
  template <typename... Fields>
  void ReadFields(const Fields&... fields) {
    ReadStruct([&](int64_t id, int type) { ReadField(id, type, fields...); });
  }

  // Calls `on_element(type)` for each element of a list. It must read or skip the value.
  template <typename OnElement>
  void ReadList(int type, OnElement on_element) {
    if (type != kList) throw Malformed{};
    ReadElements(on_element);
  }

  int32_t ReadI32(int type) {
    if (type != kI32) throw Malformed{};
    const int64_t value = ReadInteger();
    if (value < std::numeric_limits<int32_t>::min() ||
        value > std::numeric_limits<int32_t>::max()) {
      throw Malformed{};
    }
    return static_cast<int32_t>(value);
  }

  int64_t ReadI64(int type) {
    if (type != kI64) throw Malformed{};
    return ReadInteger();
  }

  // The value of a boolean field is in its type.
  static bool ReadBool(int type) {
    if (type != kTrue && type != kFalse) throw Malformed{};
    return type == kTrue;
  }

  // An element of a list of booleans has a byte of its own: 1 is true, and 0 or 2 false.
  bool ReadBoolElement(int type) {
    if (type != kTrue && type != kFalse) throw Malformed{};
    return TakeByte() == kTrue;
  }

  // Returns a view of the bytes.
  std::string_view ReadBinary(int type) {
    if (type != kBinary) throw Malformed{};
    const uint64_t size = ReadVarint();
    const auto* first = reinterpret_cast<const char*>(next_);
    Drop(size);
    return {first, size};
  }

  // Skips the value of a field.
  void SkipField(int type) { Skip(type, 0); }
  // Skips an element of a list, where a boolean has a byte of its own.
  void SkipElement(int type) { SkipElement(type, 0); }

  // Skips a list and returns its bytes.
  std::string_view SkipList(int type) {
    if (type != kList) throw Malformed{};
    const auto* first = reinterpret_cast<const char*>(next_);
    Skip(type, 0);
    return {first, static_cast<size_t>(reinterpret_cast<const char*>(next_) - first)};
  }

  size_t rest_bytes() const { return static_cast<size_t>(end_ - next_); }

 private:
  enum FieldType : uint8_t {
    kStop = 0,
    kTrue = 1,
    kFalse = 2,
    kByte = 3,
    kI16 = 4,
    kI32 = 5,
    kI64 = 6,
    kDouble = 7,
    kBinary = 8,
    kList = 9,
    kSet = 10,
    kMap = 11,
    kStruct = 12,
    kUuid = 13,
  };
  static constexpr int kMaxDepth = 32;

  void Drop(uint64_t num_bytes) {
    if (num_bytes > rest_bytes()) throw Truncated{};
    next_ += num_bytes;
  }
  uint8_t TakeByte() {
    if (next_ == end_) throw Truncated{};
    return *next_++;
  }
  uint64_t ReadVarint() {
    uint64_t value = 0;
    for (int shift = 0; shift < 64; shift += 7) {
      const uint8_t byte = TakeByte();
      value |= static_cast<uint64_t>(byte & 0x7F) << shift;
      if (byte < 0x80) return value;
    }
    throw Malformed{};
  }
  int64_t ReadInteger() {
    const uint64_t zigzag = ReadVarint();
    return static_cast<int64_t>(zigzag >> 1) ^ -static_cast<int64_t>(zigzag & 1);
  }

  void Skip(int type, int depth) {
    if (depth > kMaxDepth) throw Malformed{};
    switch (type) {
      case kTrue:
      case kFalse:
        return;
      case kByte:
        return Drop(1);
      case kI16:
      case kI32:
      case kI64:
        ReadVarint();
        return;
      case kDouble:
        return Drop(8);
      case kUuid:
        return Drop(16);
      case kBinary:
        return Drop(ReadVarint());
      case kList:
      case kSet:
        return ReadElements([&](int inner) { SkipElement(inner, depth); });
      case kMap:
        return SkipMap(depth);
      case kStruct:
        return ReadStruct([&](int64_t, int inner) { Skip(inner, depth + 1); });
      default:
        throw Malformed{};
    }
  }

  void SkipElement(int type, int depth) {
    Skip(type == kTrue || type == kFalse ? int{kByte} : type, depth + 1);
  }
  template <typename OnElement>
  void ReadElements(OnElement on_element) {
    const uint8_t head = TakeByte();
    const uint64_t size = head >> 4 != 15 ? head >> 4 : ReadVarint();
    for (uint64_t i = 0; i < size; ++i) on_element(head & 0x0F);
  }
  void SkipMap(int depth) {
    const uint64_t size = ReadVarint();
    if (size == 0) return;
    const uint8_t types = TakeByte();
    for (uint64_t i = 0; i < size; ++i) {
      SkipElement(types >> 4, depth);
      SkipElement(types & 0x0F, depth);
    }
  }

  const uint8_t* next_;
  const uint8_t* end_;
};

}  // namespace torchparquet
