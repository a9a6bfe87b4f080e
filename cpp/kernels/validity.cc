#include "kernels/validity.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>
#include <numeric>
#include <string>

#include "errors.h"
#include "kernels/bit_unpack.h"
#include "kernels/hybrid_runs.h"

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

void CheckLevel(uint32_t level, int max_level) {
  if (level > static_cast<uint32_t>(max_level)) {
    throw CorruptFile("definition level must be at most " + std::to_string(max_level) + ": " +
                      std::to_string(level));
  }
}

// Unpacks levels of more than one bit, group by group.
void UnpackWideLevels(const HybridRun& run, int bit_width, int max_level, int64_t num_rows,
                      uint8_t* out) {
  std::array<uint8_t, GroupReadableBytes(32)> padded{};
  std::array<uint32_t, kGroupValues> levels;
  for (int64_t row = 0; row < num_rows; row += kGroupValues) {
    const auto start = static_cast<size_t>(row / kGroupValues * bit_width);
    const size_t num_bytes =
        std::min<size_t>(static_cast<size_t>(bit_width), run.bytes.size() - start);
    std::memcpy(padded.data(), run.bytes.data() + start, num_bytes);
    UnpackGroup(padded.data(), bit_width, levels.data());
    const int64_t count = std::min<int64_t>(kGroupValues, num_rows - row);
    for (int64_t i = 0; i < count; ++i) {
      const uint32_t level = levels[static_cast<size_t>(i)];
      CheckLevel(level, max_level);
      out[row + i] = level == static_cast<uint32_t>(max_level);
    }
  }
}

void WriteRun(const HybridRun& run, int bit_width, int max_level, int64_t num_rows,
              uint8_t* out) {
  if (!run.packed) {
    CheckLevel(run.value, max_level);
    std::memset(out, run.value == static_cast<uint32_t>(max_level), static_cast<size_t>(num_rows));
  } else if (bit_width == 1) {
    UnpackBits(run.bytes.data(), num_rows, out);
  } else {
    UnpackWideLevels(run, bit_width, max_level, num_rows, out);
  }
}

}  // namespace

void UnpackBits(const uint8_t* bits, int64_t num_values, uint8_t* out) {
  const int64_t num_bytes = num_values / 8;
  for (int64_t i = 0; i < num_bytes; ++i) {
    std::memcpy(out + 8 * i, kBitTable[bits[i]].data(), 8);
  }
  if (num_values % 8 != 0) {
    std::memcpy(out + 8 * num_bytes, kBitTable[bits[num_bytes]].data(),
                static_cast<size_t>(num_values % 8));
  }
}

int64_t DecodeValidity(std::span<const uint8_t> runs, int max_level, int64_t num_rows,
                       uint8_t* validity) {
  const auto bit_width = static_cast<int>(std::bit_width(static_cast<unsigned>(max_level)));
  HybridRunReader reader(runs, bit_width);
  HybridRun run;
  int64_t row = 0;
  while (row < num_rows) {
    if (!reader.Next(&run)) throw CorruptFile("page holds fewer definition levels than rows");
    if (row == 0 && !run.packed && run.num_values >= num_rows &&
        run.value == static_cast<uint32_t>(max_level)) {
      return num_rows;
    }
    const int64_t count = std::min(run.num_values, num_rows - row);
    WriteRun(run, bit_width, max_level, count, validity + row);
    row += count;
  }
  return std::accumulate(validity, validity + num_rows, int64_t{0});
}

}  // namespace torchparquet::kernels
