#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <utility>
#include <vector>

#include "draws.h"
#include "encoders/delta_encoder.h"
#include "encoders/rle_bit_packed_encoder.h"
#include "encoders/thrift_compact_encoder.h"

namespace torchparquet::testing {

// Bytes that mean much to whoever counts or shifts by them.
inline uint8_t HostileByte(Draws& draws) {
  constexpr std::array<uint8_t, 12> kBytes = {0,  1,  7,   8,   31,  32,
                                              33, 64, 127, 128, 254, 255};
  return draws.OneIn(3) ? static_cast<uint8_t>(draws.Bits())
                        : kBytes[static_cast<size_t>(draws.Below(kBytes.size()))];
}

// Returns an encoder's bytes as they are, or with a few bytes flipped, replaced, put in
// or left out, or random bytes. Many edits are near the start, where lengths and headers
// are.
inline Bytes Damaged(Draws& draws, Bytes bytes) {
  if (draws.OneIn(20)) return RandomBytes(draws, draws.Below(80));
  if (draws.OneIn(3)) return bytes;
  for (int64_t edits = draws.OneIn(3) ? 3 : 1; edits > 0 && !bytes.empty(); --edits) {
    const auto size = static_cast<int64_t>(bytes.size());
    const int64_t at = draws.Below(draws.OneIn(3) ? std::min<int64_t>(size, 16) : size);
    const auto place = bytes.begin() + at;
    switch (draws.Below(6)) {
      case 0:
        *place ^= static_cast<uint8_t>(1 << draws.Below(8));
        break;
      case 1:
        *place = HostileByte(draws);
        break;
      case 2:
        bytes.insert(place, HostileByte(draws));
        break;
      case 3:
        bytes.erase(place);
        break;
      case 4:  // a long varint
        std::fill(place, place + std::min<int64_t>(draws.Between(1, 10), size - at),
                  0xFF);
        break;
      default:
        if (draws.OneIn(2)) bytes.resize(static_cast<size_t>(at));
    }
  }
  return bytes;
}

// Runs of about `num_values` values, most of them below `bound`.
inline Bytes RleBitPackedInput(Draws& draws, int width, int64_t num_values,
                               int64_t bound) {
  RleBitPackedEncoder encoder(width);
  const int64_t legal = std::min(bound, int64_t{1} << width);
  encoder.AppendRandom(draws, num_values / draws.Between(1, 3), legal);
  if (draws.OneIn(20)) encoder.AppendRandom(draws, 8, int64_t{1} << width);
  if (draws.OneIn(8)) {  // longer than the blocks that kernels read by
    std::vector<uint32_t> packed(static_cast<size_t>(8 * draws.Between(1, 200)));
    for (uint32_t& value : packed) value = static_cast<uint32_t>(draws.Below(legal));
    encoder.AppendPacked(packed);
  }
  return Damaged(draws, encoder.bytes());
}

// Values that are near each other, far from each other, or all the same.
template <typename T>
std::vector<T> RandomSteps(Draws& draws, int64_t num_values) {
  const int64_t bits = draws.Below(8 * static_cast<int64_t>(sizeof(T)) + 1);
  const uint64_t mask = bits == 64 ? ~uint64_t{0} : (uint64_t{1} << bits) - 1;
  std::vector<T> values(static_cast<size_t>(num_values));
  auto value = static_cast<T>(draws.Bits());
  for (T& each : values) each = value = static_cast<T>(value + (draws.Bits() & mask));
  return values;
}

template <typename T>
Bytes DeltaInput(Draws& draws, const std::vector<T>& values) {
  DeltaEncoder<T> encoder;
  encoder.block_values = 128 * draws.Between(1, 3);
  encoder.num_miniblocks = draws.OneIn(3) ? 1 : encoder.block_values / 32;
  encoder.unused_width = HostileByte(draws);
  encoder.padded = draws.OneIn(2);
  if (draws.OneIn(4)) {
    encoder.least_width = static_cast<int>(draws.Below(8 * sizeof(T) + 1));
  }
  return encoder.Encode(values);
}

inline std::vector<uint32_t> RandomLengths(Draws& draws, int64_t num_values) {
  std::vector<uint32_t> lengths(static_cast<size_t>(num_values));
  const int64_t bound = draws.OneIn(4) ? 200 : draws.Between(1, 40);
  for (uint32_t& length : lengths) length = static_cast<uint32_t>(draws.Below(bound));
  return lengths;
}

inline Bytes Joined(Bytes bytes, const Bytes& more) {
  compact::Append(&bytes, more);
  return bytes;
}

inline int64_t Sum(const std::vector<uint32_t>& lengths) {
  int64_t sum = 0;
  for (const uint32_t length : lengths) sum += length;
  return sum;
}

inline Bytes PlainByteArrayInput(Draws& draws, int64_t num_values) {
  Bytes bytes;
  for (const uint32_t length : RandomLengths(draws, num_values)) {
    for (int i = 0; i < 4; ++i) bytes.push_back(static_cast<uint8_t>(length >> (8 * i)));
    compact::Append(&bytes, RandomBytes(draws, length));
  }
  return Damaged(draws, std::move(bytes));
}

inline Bytes DeltaLengthInput(Draws& draws, int64_t num_values) {
  const std::vector<uint32_t> lengths = RandomLengths(draws, num_values);
  return Damaged(draws,
                 Joined(DeltaInput(draws, lengths), RandomBytes(draws, Sum(lengths))));
}

inline Bytes DeltaByteArrayInput(Draws& draws, int64_t num_values) {
  const std::vector<uint32_t> suffixes = RandomLengths(draws, num_values);
  std::vector<uint32_t> prefixes;
  uint32_t previous = 0;
  for (const uint32_t suffix : suffixes) {
    prefixes.push_back(static_cast<uint32_t>(draws.Below(std::min(previous, 300U) + 1)));
    previous = prefixes.back() + suffix;
  }
  Bytes lengths = Joined(DeltaInput(draws, prefixes), DeltaInput(draws, suffixes));
  return Damaged(draws, Joined(std::move(lengths), RandomBytes(draws, Sum(suffixes))));
}

// A page header of any kind, with fields that no version of the format knows.
inline Bytes PageHeaderInput(Draws& draws) {
  using compact::Field;
  const auto figure = [&](int64_t id) {
    return compact::I32(
        id, draws.OneIn(8) ? static_cast<int32_t>(draws.Bits()) : draws.Below(100'000));
  };
  const int64_t type = draws.Below(5);
  const int64_t details = type == 2 ? 7 : type == 3 ? 8 : 5;
  std::vector<Field> inner;
  for (int64_t id = 1; id <= 6; ++id) inner.push_back(figure(id));
  if (type == 3) inner.push_back(compact::Bool(7, draws.OneIn(2)));
  if (draws.OneIn(2)) inner.push_back(compact::RandomField(draws, 9, 3));
  std::vector<Field> fields = {compact::I32(1, type), figure(2), figure(3)};
  if (draws.OneIn(2)) fields.push_back(figure(4));
  fields.push_back(compact::StructField(details, inner, &draws));
  if (draws.OneIn(3)) fields.push_back(compact::RandomField(draws, 12, 4));
  return Damaged(draws, Joined(compact::Struct(fields, &draws), RandomBytes(draws, 3)));
}

}  // namespace torchparquet::testing
