#include "kernels/levels/validity.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>
#include <string>

#include "base/errors.h"
#include "kernels/bit_unpack.h"
#include "kernels/count_bytes.h"
#include "kernels/levels/rle_bit_packed.h"

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

ValidityReader::ValidityReader(std::span<const uint8_t> runs, int max_level)
    : runs_(runs, static_cast<int>(std::bit_width(static_cast<unsigned>(max_level)))),
      max_level_(static_cast<uint32_t>(max_level)) {}

// Moves to the next run if the current one has no row left. Returns false at the end.
bool ValidityReader::NextRun() {
  while (run_position_ == run_.num_values) {
    if (!runs_.Next(&run_)) return false;
    run_position_ = 0;
    if (!run_.packed && run_.num_values > 0 && run_.value > max_level_) {
      throw CorruptFile("definition level must be at most " + std::to_string(max_level_) +
                        ": " + std::to_string(run_.value));
    }
  }
  return true;
}

int64_t ValidityReader::ValidRunRows() {
  if (!NextRun() || run_.packed || run_.value != max_level_) return 0;
  return run_.num_values - run_position_;
}

int64_t ValidityReader::Read(int64_t num_rows, uint8_t* validity) {
  int64_t num_valid = 0;
  while (num_rows > 0) {
    if (!NextRun()) throw CorruptFile("page holds fewer definition levels than rows");
    const int64_t count = std::min(num_rows, run_.num_values - run_position_);
    if (run_.packed) {
      num_valid += ReadPacked(count, validity);
    } else {
      const bool valid = run_.value == max_level_;
      std::memset(validity, valid, static_cast<size_t>(count));
      num_valid += valid ? count : 0;
    }
    run_position_ += count;
    validity += count;
    num_rows -= count;
  }
  return num_valid;
}

int64_t ValidityReader::Skip(int64_t num_rows) {
  std::array<uint8_t, 1024> block;
  int64_t num_valid = 0;
  while (num_rows > 0) {
    if (!NextRun()) throw CorruptFile("page holds fewer definition levels than rows");
    int64_t count = std::min(num_rows, run_.num_values - run_position_);
    if (run_.packed) {
      count = std::min<int64_t>(count, block.size());
      num_valid += ReadPacked(count, block.data());
    } else {
      num_valid += run_.value == max_level_ ? count : 0;
    }
    run_position_ += count;
    num_rows -= count;
  }
  return num_valid;
}

// Reads rows of the current run without moving on.
int64_t ValidityReader::ReadPacked(int64_t num_rows, uint8_t* validity) {
  if (runs_.bit_width() == 1) {
    UnpackBits(run_.bytes.data(), run_position_, num_rows, validity);
  } else {
    UnpackWideLevels(num_rows, validity);
  }
  return CountEqual(validity, num_rows, 1);
}

// Unpacks levels of more than one bit, group by group.
void ValidityReader::UnpackWideLevels(int64_t num_rows, uint8_t* validity) const {
  const int width = runs_.bit_width();
  std::array<uint8_t, GroupReadableBytes(32)> padded{};
  std::array<uint32_t, kGroupValues> levels;
  for (int64_t row = run_position_; row < run_position_ + num_rows; ++row) {
    if (row == run_position_ || row % kGroupValues == 0) {
      const auto start = static_cast<size_t>(row / kGroupValues * width);
      const size_t num_bytes =
          std::min<size_t>(static_cast<size_t>(width), run_.bytes.size() - start);
      std::memcpy(padded.data(), run_.bytes.data() + start, num_bytes);
      UnpackGroup(padded.data(), width, levels.data());
    }
    const uint32_t level = levels[static_cast<size_t>(row % kGroupValues)];
    if (level > max_level_) {
      throw CorruptFile("definition level must be at most " + std::to_string(max_level_) +
                        ": " + std::to_string(level));
    }
    *validity++ = level == max_level_;
  }
}

}  // namespace torchparquet::kernels
