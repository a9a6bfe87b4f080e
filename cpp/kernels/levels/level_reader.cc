#include "kernels/levels/level_reader.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>
#include <string>

#include "base/errors.h"
#include "kernels/bit_unpack.h"
#include "kernels/count_bytes.h"

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
                Text("column is nested too deeply: ", max_level, " levels"));
  }
}

void LevelReader::CheckLevel(uint32_t level) const {
  if (level <= max_level_) return;
  throw CorruptFile("level must be at most ", max_level_, ": ", level);
}

int64_t LevelReader::RunOf(int level) {
  const RleBitPackedRun* run = runs_.Run();
  if (run == nullptr || run->packed) return 0;
  CheckLevel(run->value);
  return run->value == static_cast<uint32_t>(level) ? runs_.left() : 0;
}

template <typename Use>
void LevelReader::Take(int64_t num_levels, Use use) {
  constexpr const char* kTooFew = "page holds fewer levels than entries";
  runs_.Take(num_levels, kTooFew, [&](const RunPart& part) {
    if (!part.run.packed) CheckLevel(part.run.value);
    use(part);
  });
}

void LevelReader::Read(int64_t num_levels, uint8_t* levels) {
  Take(num_levels, [&](const RunPart& part) {
    if (part.run.packed) {
      Unpack(part, levels);
    } else {
      std::memset(levels, static_cast<int>(part.run.value),
                  static_cast<size_t>(part.count));
    }
    levels += part.count;
  });
}

int64_t LevelReader::ReadValidity(int64_t num_levels, uint8_t* validity) {
  int64_t num_valid = 0;
  Take(num_levels, [&](const RunPart& part) {
    if (part.run.packed) {
      Unpack(part, validity);
      const auto valid = static_cast<uint8_t>(max_level_);
      for (int64_t i = 0; valid > 1 && i < part.count; ++i) {
        validity[i] = validity[i] == valid;
      }
      num_valid += CountEqual(validity, part.count, 1);
    } else {
      const bool is_valid = part.run.value == max_level_;
      std::memset(validity, is_valid, static_cast<size_t>(part.count));
      num_valid += is_valid ? part.count : 0;
    }
    validity += part.count;
  });
  return num_valid;
}

int64_t LevelReader::Skip(int64_t num_levels) {
  std::array<uint8_t, 1024> block;
  int64_t num_valid = 0;
  Take(num_levels, [&](const RunPart& part) {
    const auto& [run, begin, count] = part;
    if (!run.packed) num_valid += run.value == max_level_ ? count : 0;
    for (int64_t done = 0; run.packed && done < count;) {
      const int64_t size = std::min<int64_t>(count - done, block.size());
      Unpack({run, begin + done, size}, block.data());
      num_valid += CountEqual(block.data(), size, static_cast<uint8_t>(max_level_));
      done += size;
    }
  });
  return num_valid;
}

// Unpacks levels of a packed run.
void LevelReader::Unpack(const RunPart& part, uint8_t* levels) const {
  const std::span<const uint8_t> bytes = part.run.bytes;
  const int width = runs_.bit_width();
  if (width == 1) {
    UnpackBits(bytes.data(), part.begin, part.count, levels);
    return;
  }
  if (width == 2) {
    UnpackPairs(bytes.data(), part.begin, part.count, levels);
    if (max_level_ < 3) CheckLevel(*std::max_element(levels, levels + part.count));
    return;
  }
  // A group of eight levels is a word or less.
  const uint64_t mask = (uint64_t{1} << width) - 1;
  const uint8_t* end = bytes.data() + bytes.size();
  uint64_t highest = 0;
  for (int64_t left = part.count, position = part.begin; left > 0;) {
    const int64_t first = position % kGroupValues;
    const int64_t count = std::min(left, kGroupValues - first);
    const uint8_t* group = bytes.data() + position / kGroupValues * width;
    std::array<uint8_t, sizeof(uint64_t)> padded{};
    if (part.run.readable_end - group < static_cast<int64_t>(padded.size())) {
      // The last group of a page may be cut short.
      std::copy(group, std::min(group + width, end), padded.begin());
      group = padded.data();
    }
    const uint64_t word = Load64Bits(group);
    for (int64_t i = first; i < first + count; ++i) {
      const uint64_t level = (word >> (i * width)) & mask;
      highest = std::max(highest, level);
      *levels++ = static_cast<uint8_t>(level);
    }
    position += count;
    left -= count;
  }
  CheckLevel(static_cast<uint32_t>(highest));
}

}  // namespace torchparquet::kernels
