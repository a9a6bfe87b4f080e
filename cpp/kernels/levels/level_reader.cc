#include "kernels/levels/level_reader.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>
#include <string>

#include "base/errors.h"
#include "kernels/bit_unpack.h"
#include "kernels/levels/validity.h"

namespace torchparquet::kernels {
namespace {

// The four levels of two bits in a byte, as four bytes. No table: compilers do sixteen at
// once.
inline uint32_t FourPairs(uint8_t byte) {
  uint32_t copies = byte;
  copies |= copies << 8;
  copies |= copies << 16;
  return (copies & 0x3) | (copies >> 2 & 0x300) | (copies >> 4 & 0x30000) |
         (copies >> 6 & 0x3000000);
}

// Writes the next levels of two bits, from a place within their group on. Lists of
// nullable values mostly have two bits.
void UnpackPairs(const uint8_t* bytes, int64_t begin, int64_t num_levels,
                 uint8_t* __restrict out) {
  const auto level = [&](int64_t i) { return (bytes[i / 4] >> (2 * (i % 4))) & 3; };
  for (; begin % 4 != 0 && num_levels > 0; ++begin, --num_levels) {
    *out++ = static_cast<uint8_t>(level(begin));
  }
  const uint8_t* first = bytes + begin / 4;
  const int64_t num_whole = num_levels / 4;
  for (int64_t i = 0; i < num_whole; ++i) {
    const uint32_t four = FourPairs(first[i]);
    std::memcpy(out + 4 * i, &four, sizeof(four));
  }
  for (int64_t i = 4 * num_whole; i < num_levels; ++i) {
    out[i] = static_cast<uint8_t>(level(begin + i));
  }
}

}  // namespace

LevelReader::LevelReader(std::span<const uint8_t> runs, int max_level)
    : runs_(runs, static_cast<int>(std::bit_width(static_cast<unsigned>(max_level)))),
      max_level_(static_cast<uint32_t>(max_level)) {
  if (max_level < 1 || max_level > 255) {
    throw Error(ErrorKind::kNotSupported,
                "column is nested too deeply: " + std::to_string(max_level) + " levels");
  }
}

void LevelReader::CheckLevel(uint32_t level) const {
  if (level <= max_level_) return;
  throw CorruptFile("level must be at most " + std::to_string(max_level_) + ": " +
                    std::to_string(level));
}

// Moves to the next run if the current one has no entry left. Returns false at the end.
bool LevelReader::NextRun() {
  while (run_position_ == run_.num_values) {
    if (!runs_.Next(&run_)) return false;
    run_position_ = 0;
    if (!run_.packed && run_.num_values > 0) CheckLevel(run_.value);
  }
  return true;
}

int64_t LevelReader::RunOf(int level) {
  if (!NextRun() || run_.packed || run_.value != static_cast<uint32_t>(level)) return 0;
  return run_.num_values - run_position_;
}

// The number of the entries that the current run has.
int64_t LevelReader::TakeFromRun(int64_t num_levels) {
  if (!NextRun()) throw CorruptFile("page holds fewer levels than entries");
  return std::min(num_levels, run_.num_values - run_position_);
}

void LevelReader::Read(int64_t num_levels, uint8_t* levels) {
  while (num_levels > 0) {
    const int64_t count = TakeFromRun(num_levels);
    if (run_.packed) {
      UnpackLevels(count, levels);
    } else {
      std::memset(levels, static_cast<int>(run_.value), static_cast<size_t>(count));
    }
    run_position_ += count;
    levels += count;
    num_levels -= count;
  }
}

void LevelReader::Skip(int64_t num_levels) {
  std::array<uint8_t, 512> block;
  while (num_levels > 0) {
    int64_t count = TakeFromRun(num_levels);
    if (run_.packed) {
      count = std::min<int64_t>(count, block.size());
      UnpackLevels(count, block.data());
    }
    run_position_ += count;
    num_levels -= count;
  }
}

// Unpacks levels of the current run without moving on.
void LevelReader::UnpackLevels(int64_t num_levels, uint8_t* levels) const {
  const int width = runs_.bit_width();
  if (width == 1) {
    UnpackBits(run_.bytes.data(), run_position_, num_levels, levels);
    return;
  }
  if (width == 2) {
    UnpackPairs(run_.bytes.data(), run_position_, num_levels, levels);
    if (max_level_ < 3) CheckLevel(*std::max_element(levels, levels + num_levels));
    return;
  }
  // A group of eight levels is a word or less.
  const uint64_t mask = (uint64_t{1} << width) - 1;
  const uint8_t* end = run_.bytes.data() + run_.bytes.size();
  uint64_t highest = 0;
  for (int64_t position = run_position_; num_levels > 0;) {
    const int64_t first = position % kGroupValues;
    const int64_t count = std::min(num_levels, kGroupValues - first);
    const uint8_t* group = run_.bytes.data() + position / kGroupValues * width;
    std::array<uint8_t, sizeof(uint64_t)> padded{};
    if (run_.readable_end - group < static_cast<int64_t>(padded.size())) {
      // The last group of a page may be cut short.
      std::copy(group, std::min(group + width, end), padded.begin());
      group = padded.data();
    }
    const uint64_t word = LoadWord(group);
    for (int64_t i = first; i < first + count; ++i) {
      const uint64_t level = (word >> (i * width)) & mask;
      highest = std::max(highest, level);
      *levels++ = static_cast<uint8_t>(level);
    }
    position += count;
    num_levels -= count;
  }
  CheckLevel(static_cast<uint32_t>(highest));
}

}  // namespace torchparquet::kernels
