#include "kernels/levels/selected.h"

#include <algorithm>
#include <bit>
#include <cstring>

namespace torchparquet::kernels {
namespace {

// Moves the bits of `word` that `mask` marks to the low end, in order.
BitWord ExtractBits(BitWord word, BitWord mask) {
  if (mask == ~BitWord{0}) return word;
  BitWord out = 0;
  for (int64_t i = 0; mask != 0; mask &= mask - 1, ++i) {
    out |= (word >> std::countr_zero(mask) & 1) << i;
  }
  return out;
}

// Eight bytes of 0 or 1 as bits. The first byte becomes the lowest bit.
BitWord BitsOfBytes(const uint8_t* bytes) {
  uint64_t eight;
  std::memcpy(&eight, bytes, sizeof(eight));
  return eight * 0x0102040810204080 >> 56;
}

// Up to 64 bytes of 0 or 1 as bits.
BitWord WordOfBytes(std::span<const uint8_t> bytes) {
  BitWord word = 0;
  size_t i = 0;
  for (; i + 8 <= bytes.size(); i += 8) word |= BitsOfBytes(&bytes[i]) << i;
  for (; i < bytes.size(); ++i) word |= BitWord{bytes[i]} << i;
  return word;
}

// Appends bits to words.
class BitAppender {
 public:
  explicit BitAppender(BitWord* out) : out_(out) {}

  // The low `num_bits` of `bits`; the others are zero.
  void Append(BitWord bits, int num_bits) {
    word_ |= bits << filled_;
    if (filled_ + num_bits < kWordBits) {
      filled_ += num_bits;
      return;
    }
    *out_++ = word_;
    const auto used = static_cast<int>(kWordBits - filled_);
    word_ = used < kWordBits ? bits >> used : 0;
    filled_ = num_bits - used;
  }
  void End() {
    if (filled_ > 0) *out_ = word_;
  }

 private:
  BitWord* out_;
  BitWord word_ = 0;
  int64_t filled_ = 0;
};

}  // namespace

void CopyBits(const BitWord* bits, int64_t begin, int64_t end, BitWord* out) {
  const int64_t num_bits = end - begin;
  if (num_bits <= 0) return;
  const int64_t shift = begin % kWordBits;
  const BitWord* from = bits + begin / kWordBits;
  const BitWord* last = bits + (end - 1) / kWordBits;
  const int64_t num_words = NumWords(num_bits);
  for (int64_t i = 0; i < num_words; ++i, ++from) {
    out[i] = *from >> shift;
    if (shift > 0 && from < last) out[i] |= from[1] << (kWordBits - shift);
  }
  if (num_bits % kWordBits > 0) out[num_words - 1] &= LowBits(num_bits % kWordBits);
}

void SetBits(int64_t begin, int64_t end, BitWord* bits) {
  while (begin < end) {
    const int64_t first = begin % kWordBits;
    const int64_t count = std::min(end - begin, kWordBits - first);
    bits[begin / kWordBits] |= (count == kWordBits ? ~BitWord{0} : LowBits(count))
                               << first;
    begin += count;
  }
}

int64_t CountBits(std::span<const BitWord> bits) {
  int64_t count = 0;
  for (const BitWord word : bits) count += std::popcount(word);
  return count;
}

int64_t CountRuns(std::span<const BitWord> bits) {
  int64_t count = 0;
  BitWord before = 0;
  for (const BitWord word : bits) {
    count += std::popcount(word & ~(word << 1 | before));
    before = word >> (kWordBits - 1);
  }
  return count;
}

int64_t FindBit(const BitWord* bits, int64_t begin, int64_t end, bool value) {
  const BitWord flip = value ? 0 : ~BitWord{0};
  while (begin < end) {
    const BitWord word = (bits[begin / kWordBits] ^ flip) >> (begin % kWordBits);
    if (word != 0) return std::min(end, begin + std::countr_zero(word));
    begin += kWordBits - begin % kWordBits;
  }
  return end;
}

int64_t FindOne(const BitWord* bits, int64_t index) {
  int64_t begin = 0;
  for (int64_t ones; (ones = std::popcount(*bits)) <= index; ++bits) {
    index -= ones;
    begin += kWordBits;
  }
  BitWord word = *bits;
  for (; index > 0; --index) word &= word - 1;
  return begin + std::countr_zero(word);
}

int64_t CountOnes(const BitWord* bits, int64_t begin, int64_t end) {
  int64_t count = 0;
  while (begin < end) {
    const int64_t stop = EndInWord(begin, end);
    count += std::popcount(BitsInWord(bits, begin, stop));
    begin = stop;
  }
  return count;
}

int64_t EndOfOnes(const BitWord* bits, int64_t begin, int64_t end, int64_t num_ones) {
  while (begin < end) {
    const int64_t stop = EndInWord(begin, end);
    const BitWord word = BitsInWord(bits, begin, stop);
    const int64_t count = std::popcount(word);
    if (count >= num_ones) return begin + FindOne(&word, num_ones - 1) + 1;
    num_ones -= count;
    begin = stop;
  }
  return end;
}

SelectedRows SelectRows(std::span<const uint8_t> validity, const BitWord* selected,
                        BitWord* values, BitWord* valid) {
  SelectedRows found;
  BitAppender value_bits(values);
  BitAppender valid_bits(valid);
  const auto word_rows = static_cast<size_t>(kWordBits);
  for (size_t begin = 0; begin < validity.size(); begin += word_rows, ++selected) {
    const auto rows =
        validity.subspan(begin, std::min(word_rows, validity.size() - begin));
    const BitWord is_valid = WordOfBytes(rows);
    const int num_values = std::popcount(is_valid);
    const int num_selected = std::popcount(*selected);
    value_bits.Append(ExtractBits(*selected, is_valid), num_values);
    valid_bits.Append(ExtractBits(is_valid, *selected), num_selected);
    found.num_values += num_values;
    found.num_rows += num_selected;
  }
  value_bits.End();
  valid_bits.End();
  return found;
}

std::span<const uint8_t> AsPackedRun(BitWord* bits, int64_t num_bits) {
  const auto num_groups = static_cast<uint64_t>(num_bits + 7) / 8;
  const uint64_t number = num_groups << 1 | 1;
  const int num_bytes = static_cast<int>(std::bit_width(number) + 6) / 7;
  // Words are raw storage for bytes.
  uint8_t* begin = reinterpret_cast<uint8_t*>(bits) - num_bytes;
  for (int i = 0; i < num_bytes; ++i) {
    const bool is_last = i + 1 == num_bytes;
    begin[i] = static_cast<uint8_t>((number >> (7 * i) & 0x7f) | (is_last ? 0 : 0x80));
  }
  return {begin, static_cast<size_t>(num_bytes) + num_groups};
}

}  // namespace torchparquet::kernels
