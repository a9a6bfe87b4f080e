#pragma once

#include <algorithm>
#include <bit>
#include <cstdint>
#include <span>

namespace torchparquet::kernels {

// Bitmaps of rows and values: bit i of word w stands for number 64 * w + i.
using BitWord = uint64_t;
constexpr int64_t kWordBits = 64;

constexpr int64_t NumWords(int64_t num_bits) {
  return (num_bits + kWordBits - 1) / kWordBits;
}
// The bits below `num_bits`, which is less than 64.
constexpr BitWord LowBits(int64_t num_bits) { return (BitWord{1} << num_bits) - 1; }

// Writes the bits [begin, end) of `bits` from bit 0 of `out` on. The rest of the last
// word is zero.
void CopyBits(const BitWord* bits, int64_t begin, int64_t end, BitWord* out);

// Sets the bits [begin, end).
void SetBits(int64_t begin, int64_t end, BitWord* bits);

int64_t CountBits(std::span<const BitWord> bits);

// The number of runs of ones.
int64_t CountRuns(std::span<const BitWord> bits);

// The first number at or after `begin` whose bit is `value`, or `end`.
int64_t FindBit(const BitWord* bits, int64_t begin, int64_t end, bool value);

// The number of the one that has `index` ones before it, which exists.
int64_t FindOne(const BitWord* bits, int64_t index);

// The end of the bits [begin, end) that lie in one word with the first of them.
constexpr int64_t EndInWord(int64_t begin, int64_t end) {
  return std::min(end, begin - begin % kWordBits + kWordBits);
}

// The bits [begin, end), which lie in one word, from bit 0 on. The others are zero.
inline BitWord BitsInWord(const BitWord* bits, int64_t begin, int64_t end) {
  const BitWord word = bits[begin / kWordBits] >> (begin % kWordBits);
  return end - begin < kWordBits ? word & LowBits(end - begin) : word;
}

// The number of ones among the bits [begin, end).
int64_t CountOnes(const BitWord* bits, int64_t begin, int64_t end);

// Calls use(i) for each one among the bits [begin, end), in order.
template <typename Use>
void ForOnes(const BitWord* bits, int64_t begin, int64_t end, Use use) {
  while (begin < end) {
    const int64_t stop = EndInWord(begin, end);
    BitWord word = BitsInWord(bits, begin, stop);
    for (; word != 0; word &= word - 1) use(begin + std::countr_zero(word));
    begin = stop;
  }
}

// The end of the shortest stretch from `begin` on that has `num_ones` ones, at least one.
// `end` if there are fewer.
int64_t EndOfOnes(const BitWord* bits, int64_t begin, int64_t end, int64_t num_ones);

// Some rows of a page with nulls.
struct SelectedRows {
  int64_t num_rows = 0;
  int64_t num_values = 0;  // stored in the page, those of other rows included
};

// Takes the rows whose bit is set in `selected` out of a page. `validity` has a byte for
// each row of the page: 1 if the page has a value for it, else 0. Writes a bit for each
// value of the page, which tells if its row is taken, and a bit for each taken row, which
// tells if it is valid. Each output has as many words as `selected`.
SelectedRows SelectRows(std::span<const uint8_t> validity, const BitWord* selected,
                        BitWord* values, BitWord* valid);

// Views bits as levels 0 and 1 in the RLE/bit-packing hybrid. Writes to the word before
// `bits`, which must be the caller's.
std::span<const uint8_t> AsPackedRun(BitWord* bits, int64_t num_bits);

}  // namespace torchparquet::kernels
