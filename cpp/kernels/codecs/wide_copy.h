#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>

#if defined(__SSSE3__)
#include <tmmintrin.h>
#elif defined(__aarch64__)
#include <arm_neon.h>
#endif

namespace torchparquet::kernels {

// 16 bytes in a register. Copies of whole words write beyond what is asked for: the
// caller keeps room for that.
using Word = uint8_t __attribute__((vector_size(16)));
inline constexpr size_t kWordBytes = sizeof(Word);

inline Word LoadWord(const uint8_t* in) {
  Word word;
  std::memcpy(&word, in, kWordBytes);
  return word;
}
inline void StoreWord(const Word& word, uint8_t* out) {
  std::memcpy(out, &word, kWordBytes);
}
inline void CopyWord(const uint8_t* in, uint8_t* out) { StoreWord(LoadWord(in), out); }

inline uint32_t Load16Bits(const uint8_t* in) {
  uint16_t value;
  std::memcpy(&value, in, sizeof(value));
  return value;
}

// Returns the bytes of `word` at `places`. A place of 128 or more gives 0.
inline Word Shuffle(const Word& word, const Word& places) {
#if defined(__SSSE3__)
  return reinterpret_cast<Word>(_mm_shuffle_epi8(reinterpret_cast<__m128i>(word),
                                                 reinterpret_cast<__m128i>(places)));
#elif defined(__aarch64__)
  return reinterpret_cast<Word>(vqtbl1q_u8(reinterpret_cast<uint8x16_t>(word),
                                           reinterpret_cast<uint8x16_t>(places)));
#else
  Word out = {};
  for (size_t i = 0; i < kWordBytes; ++i) out[i] = places[i] < 16 ? word[places[i]] : 0;
  return out;
#endif
}

// Places for Shuffle, one word for each number from 0 to 16.
struct PlaceTable {
  alignas(kWordBytes) std::array<std::array<uint8_t, kWordBytes>, kWordBytes + 1> rows{};

  Word operator[](size_t number) const { return LoadWord(rows[number].data()); }
};

template <typename PlaceOf>
constexpr PlaceTable MakePlaces(PlaceOf place_of) {
  PlaceTable table;
  for (size_t number = 0; number <= kWordBytes; ++number) {
    for (size_t i = 0; i < kWordBytes; ++i) {
      table.rows[number][i] = static_cast<uint8_t>(place_of(number, i));
    }
  }
  return table;
}

// For a period from 1 to 16: the first bytes of a word, again and again.
inline constexpr PlaceTable kRepeatFirst =
    MakePlaces([](size_t period, size_t i) { return period == 0 ? 0 : i % period; });
// For a period from 1 to 16: the last bytes of a word, again and again.
inline constexpr PlaceTable kRepeatLast = MakePlaces([](size_t period, size_t i) {
  return period == 0 ? 0 : kWordBytes - period + i % period;
});

// Two tables for Append: each byte of the result is one of the first word, or of the
// second.
inline constexpr size_t kNoPlace = 0x80;
inline constexpr PlaceTable kAppendFirst = MakePlaces(
    [](size_t count, size_t i) { return i + count < kWordBytes ? i + count : kNoPlace; });
inline constexpr PlaceTable kAppendSecond = MakePlaces([](size_t count, size_t i) {
  return i + count < kWordBytes ? kNoPlace : i + count - kWordBytes;
});

// Returns the last word of `last` followed by the first `count` bytes of `more`.
inline Word Append(const Word& last, const Word& more, size_t count) {
  return Shuffle(last, kAppendFirst[count]) | Shuffle(more, kAppendSecond[count]);
}

// As memcpy. Reads and writes up to 32 bytes more.
inline void CopyLiteral(const uint8_t* in, size_t num_bytes, uint8_t* out) {
  // Most are short, and a call would take longer.
  constexpr size_t kMaxWordwise = 256;
  if (num_bytes > kMaxWordwise) [[unlikely]] {
    std::memcpy(out, in, num_bytes);
    return;
  }
  size_t i = 0;
  do {
    CopyWord(in + i, out + i);
    CopyWord(in + i + kWordBytes, out + i + kWordBytes);
    i += 2 * kWordBytes;
  } while (i < num_bytes);
}

// For a period below 16: the most bytes of a word after which it begins anew.
inline constexpr auto kWholePeriods = [] {
  std::array<uint8_t, kWordBytes> steps{};
  for (size_t period = 1; period < kWordBytes; ++period) {
    steps[period] = static_cast<uint8_t>(kWordBytes - kWordBytes % period);
  }
  return steps;
}();

// Copies `num_bytes` from `offset` bytes before `out`, as if byte by byte: a copy longer
// than its offset repeats what it has written. Writes up to 32 bytes more. `offset` is at
// least 1, and 16 bytes at `out` can be read.
inline void CopyMatch(size_t offset, size_t num_bytes, uint8_t* out) {
  const uint8_t* in = out - offset;
  if (offset >= kWordBytes) {
    CopyWord(in, out);
    CopyWord(in + kWordBytes, out + kWordBytes);
    for (size_t i = 2 * kWordBytes; i < num_bytes; i += kWordBytes) {
      CopyWord(in + i, out + i);
    }
    return;
  }
  const Word pattern = Shuffle(LoadWord(in), kRepeatFirst[offset]);
  const size_t step = kWholePeriods[offset];
  for (size_t i = 0; i < num_bytes; i += step) StoreWord(pattern, out + i);
}

}  // namespace torchparquet::kernels
