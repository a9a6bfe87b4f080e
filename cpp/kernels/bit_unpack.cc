#include "kernels/bit_unpack.h"

#include <array>
#include <cstddef>

namespace torchparquet::kernels {
namespace {

// Entry b holds the eight bits of b as eight bytes.
constexpr std::array<std::array<uint8_t, 8>, 256> MakeBitTable() {
  std::array<std::array<uint8_t, 8>, 256> table{};
  for (size_t byte = 0; byte < 256; ++byte) {
    for (size_t bit = 0; bit < 8; ++bit) table[byte][bit] = (byte >> bit) & 1;
  }
  return table;
}
constexpr auto kBitTable = MakeBitTable();

}  // namespace

void UnpackBits(const uint8_t* bits, int64_t begin, int64_t num_values, uint8_t* out) {
  // Bit by bit up to the next byte border, then whole bytes.
  for (; begin % 8 != 0 && num_values > 0; ++begin, --num_values) {
    *out++ = (bits[begin / 8] >> (begin % 8)) & 1;
  }
  bits += begin / 8;
  const int64_t num_bytes = num_values / 8;
  for (int64_t i = 0; i < num_bytes; ++i) {
    std::memcpy(out + 8 * i, kBitTable[bits[i]].data(), 8);
  }
  if (num_values % 8 != 0) {
    std::memcpy(out + 8 * num_bytes, kBitTable[bits[num_bytes]].data(),
                static_cast<size_t>(num_values % 8));
  }
}

}  // namespace torchparquet::kernels
