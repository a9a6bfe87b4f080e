#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

namespace torchparquet::kernels {

// The tables that zstd decodes by. Functions that read one take its description off the
// front of `in`, and return false if it is damaged. Up to 8 bytes before `in` are read.

// For each value of the next 11 bits of a stream: the literal whose code they begin with,
// and the bits of the code.
struct ZstdHuffmanTable {
  static constexpr int kBits = 11;
  int max_bits = 0;  // of a code
  std::array<uint16_t, 1 << kBits> codes;
};

bool ReadHuffmanTable(std::span<const uint8_t>* in, ZstdHuffmanTable* table);

// The three kinds of codes in a sequence, in the order of their tables.
enum ZstdCode : uint8_t { kLiteralLength, kOffset, kMatchLength };
inline constexpr size_t kNumZstdCodes = 3;

// For each state: the number that its code stands for, without the bits to add to it, and
// how the next state comes of it.
struct ZstdCell {
  uint16_t next = 0;  // to which `next_bits` of the stream are added
  uint8_t next_bits = 0;
  uint8_t extra_bits = 0;  // to add to `base`
  uint32_t base = 0;
};
struct ZstdStateTable {
  static constexpr int kMaxLog = 9;
  int log = 0;
  // True if more than one length in 16 has bits to add.
  bool has_long = false;
  std::array<ZstdCell, 1 << kMaxLog> cells;
};

// The tables of a block.
using ZstdStateTables = std::array<ZstdStateTable, kNumZstdCodes>;

// By the format's own distribution, of one code alone, or by a distribution in `in`.
const ZstdStateTable& DefaultStateTable(ZstdCode code);
bool ReadSingleState(ZstdCode code, std::span<const uint8_t>* in, ZstdStateTable* table);
bool ReadStateTable(ZstdCode code, std::span<const uint8_t>* in, ZstdStateTable* table);

}  // namespace torchparquet::kernels
