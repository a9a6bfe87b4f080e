#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <string_view>

#include "errors.h"

namespace torchparquet {

// A table in the binary format of FlatBuffers, in which Arrow stores schemas. Takes no
// memory, so a value that is stored once and referred to often costs nothing. Throws
// Error(kCorruptFile) for offsets outside the bytes. Fields are numbered in the order of
// the table's declaration.
class FlatTable {
 public:
  // The root table of `bytes`, which must outlive it.
  explicit FlatTable(std::span<const uint8_t> bytes)
      : FlatTable(bytes, FollowOffset(bytes, 0)) {}

  // A number; the default of its declaration if it is not stored.
  template <typename T>
  T Number(int field, T by_default = 0) const {
    const int64_t at = Find(field);
    return at == kNotStored ? by_default : Load<T>(bytes_, at);
  }

  FlatTable Table(int field) const {
    const int64_t at = Find(field);
    if (at == kNotStored) throw CorruptFile("table lacks a field");
    return {bytes_, FollowOffset(bytes_, at)};
  }

  std::string_view Text(int field) const {
    const int64_t at = Find(field);
    if (at == kNotStored) return {};
    const int64_t begin = FollowOffset(bytes_, at);
    const int64_t num_bytes = Load<uint32_t>(bytes_, begin);
    const int64_t text = begin + int64_t{sizeof(uint32_t)};
    if (num_bytes > static_cast<int64_t>(bytes_.size()) - text) throw OutsideBytes();
    // Bytes are read as characters.
    return {reinterpret_cast<const char*>(bytes_.data()) + text,
            static_cast<size_t>(num_bytes)};
  }

  // Calls `take` with each table of a list.
  template <typename Take>
  void ForEachTable(int field, const Take& take) const {
    const int64_t at = Find(field);
    if (at == kNotStored) return;
    const int64_t begin = FollowOffset(bytes_, at);
    const int64_t num_tables = Load<uint32_t>(bytes_, begin);
    for (int64_t i = 1; i <= num_tables; ++i) {
      const int64_t item = begin + i * int64_t{sizeof(uint32_t)};
      take(FlatTable(bytes_, FollowOffset(bytes_, item)));
    }
  }

 private:
  static constexpr int64_t kNotStored = -1;

  FlatTable(std::span<const uint8_t> bytes, int64_t begin)
      : bytes_(bytes), begin_(begin) {}

  static Error OutsideBytes() { return CorruptFile("table lies outside its bytes"); }

  template <typename T>
  static T Load(std::span<const uint8_t> bytes, int64_t at) {
    if (at < 0 || at > static_cast<int64_t>(bytes.size()) - int64_t{sizeof(T)}) {
      throw OutsideBytes();
    }
    T value;
    std::memcpy(&value, bytes.data() + at, sizeof(value));
    return value;
  }

  static int64_t FollowOffset(std::span<const uint8_t> bytes, int64_t at) {
    return at + Load<uint32_t>(bytes, at);
  }

  // The place of a field. A table begins with the distance back to the list of its
  // fields' places, which has its own size, the size of the table, and then the places.
  int64_t Find(int field) const {
    const int64_t places = begin_ - Load<int32_t>(bytes_, begin_);
    const int64_t place = int64_t{sizeof(uint16_t)} * (2 + field);
    if (place >= Load<uint16_t>(bytes_, places)) return kNotStored;
    const int64_t offset = Load<uint16_t>(bytes_, places + place);
    return offset == 0 ? kNotStored : begin_ + offset;
  }

  std::span<const uint8_t> bytes_;
  int64_t begin_;
};

}  // namespace torchparquet
