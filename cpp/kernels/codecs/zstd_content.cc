#include "kernels/codecs/zstd_content.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <limits>
#include <utility>

#include "kernels/codecs/wide_copy.h"
#include "kernels/codecs/zstd_bits.h"

namespace torchparquet::kernels {
namespace {

// The lower one, without a branch, which a compiler makes of std::min.
inline size_t AtMost(size_t number, size_t most) {
  const auto over = static_cast<int64_t>(number - most);
  return most + static_cast<size_t>(over & over >> 63);
}

// The number of the last offset that a sequence means: 1 for the latest. Without
// literals, the latest would only continue the copy before. More than 3 is a new one, but
// for 4 of number 3.
inline uint32_t OffsetIndex(const ZstdSequence& sequence) {
  return sequence.offset_number + (sequence.num_literals == 0 ? 1 : 0);
}

// An offset of 0, which is none, leads out of any frame instead.
inline size_t OneLess(size_t offset) {
  return offset == 1 ? std::numeric_limits<uint32_t>::max() : offset - 1;
}

// The last offsets, where a branch predicts which of them a sequence means.
class BranchedOffsets {
 public:
  static constexpr bool kBranches = true;
  explicit BranchedOffsets(const ZstdOffsets& last) : last_(last) {}
  const ZstdOffsets& last() const { return last_; }

  // The offset that a sequence means, which becomes the latest.
  [[gnu::always_inline]] size_t Take(const ZstdSequence& sequence) {
    auto& [first, second, third] = last_;
    size_t offset = size_t{sequence.offset_number} - 3;
    if (sequence.offset_number <= 3) {
      const uint32_t index = OffsetIndex(sequence);
      if (index == 1) return first;
      offset = index == 2 ? second : index == 3 ? third : OneLess(first);
      third = index == 2 ? third : second;
    } else {
      third = second;
    }
    second = first;
    first = offset;
    return offset;
  }

 private:
  ZstdOffsets last_;
};

// The same without a branch.
class ShuffledOffsets {
 public:
  static constexpr bool kBranches = false;
  explicit ShuffledOffsets(const ZstdOffsets& last) {
    for (size_t i = 0; i < last.size(); ++i) last_[i] = static_cast<uint32_t>(last[i]);
  }
  ZstdOffsets last() const { return {last_[0], last_[1], last_[2]}; }

  [[gnu::always_inline]] size_t Take(const ZstdSequence& sequence) {
    const uint32_t index = OffsetIndex(sequence);
    last_[3] = sequence.offset_number - 3;
    // One test: of each alone a branch would be mispredicted.
    if (((index ^ 4) | (sequence.offset_number ^ 3)) == 0) [[unlikely]] {
      last_[3] = static_cast<uint32_t>(OneLess(last_[0]));
    }
    last_ = reinterpret_cast<Last>(
        Shuffle(reinterpret_cast<Word>(last_), kOrders[AtMost(index, 4)]));
    return last_[0];
  }

 private:
  // The last offsets, and a new one.
  using Last = uint32_t __attribute__((vector_size(16)));

  // For an index: the offset that becomes the latest, and the others.
  static constexpr PlaceTable kOrders = [] {
    constexpr uint8_t kNumbers[5][4] = {
        {}, {0, 1, 2, 3}, {1, 0, 2, 3}, {2, 0, 1, 3}, {3, 0, 1, 2}};
    PlaceTable table;
    for (size_t index = 0; index < 5; ++index) {
      for (size_t i = 0; i < kWordBytes; ++i) {
        table.rows[index][i] =
            static_cast<uint8_t>(size_t{4} * kNumbers[index][i / 4] + i % 4);
      }
    }
    return table;
  }();

  Last last_{};
};

// Writes the content of a block, sequence after sequence.
class Writer {
 public:
  Writer(const ZstdContent& content, const ZstdPlace& place, const ZstdOffsets& offsets)
      : sequence_(content.sequences.data()),
        sequences_end_(sequence_ + content.sequences.size()),
        literal_(content.literals.data()),
        literals_end_(literal_ + content.literals.size()),
        place_(place),
        out_(place.out),
        offsets_(offsets) {}

  const ZstdOffsets& offsets() const { return offsets_; }

  // Returns the end of the content, or null if it is damaged.
  [[gnu::always_inline]] uint8_t* WriteAll() {
    constexpr ptrdiff_t kFew = 8;
    constexpr ptrdiff_t kMost = 256;
    bool after_repeats = false;
    while (sequence_ != sequences_end_) {
      if (WriteRepeats()) {
        after_repeats = true;
        continue;
      }
      ptrdiff_t count =
          std::min(after_repeats ? kFew : kMost, sequences_end_ - sequence_);
      after_repeats = false;
      bool fits;
      while (!(fits = Fit(Sums(sequence_ + count).first)) && count > kFew) {
        count -= kFew;  // the last ones, of which copies need room
      }
      const ZstdSequence* end = sequence_ + count;
      if (!(fits ? Write(end) : WriteChecked(end))) return nullptr;
    }
    return WriteRest();
  }

 private:
  // Copies may write as many bytes more.
  static constexpr ptrdiff_t kRoom = 48;

  // Four sequences are three words of these numbers.
  using Numbers = uint32_t __attribute__((vector_size(16)));
  static_assert(sizeof(ZstdSequence) == 3 * sizeof(uint32_t));

  struct Totals {
    uint64_t literals = 0;
    uint64_t copy_bytes = 0;
  };
  // True if so many literals are there, and the sequences end before the room that copies
  // need.
  bool Fit(const Totals& totals) const {
    const ptrdiff_t room = place_.end - out_ - kRoom;
    return totals.literals <= static_cast<uint64_t>(literals_end_ - literal_) &&
           static_cast<int64_t>(totals.literals + totals.copy_bytes) <= room;
  }

  // Adds up the sequences up to `end`, and returns it; or up to one of the first four
  // with a number outside of a range.
  template <bool kInRange = false>
  [[gnu::always_inline]] std::pair<Totals, const ZstdSequence*> Sums(
      const ZstdSequence* end) const {
    constexpr Numbers kFrom[] = {{1, 3, 1, 1}, {3, 1, 1, 3}, {1, 1, 3, 1}};
    constexpr Numbers kRange[] = {{6, 13, 0, 6}, {13, 0, 6, 13}, {0, 6, 13, 0}};
    Numbers sums[3] = {};
    const ZstdSequence* sequence = sequence_;
    for (; end - sequence >= 4; sequence += 4) {
      Numbers numbers[3];
      std::memcpy(&numbers, sequence, sizeof(numbers));
      if constexpr (kInRange) {
        Numbers outside{};
        for (size_t i = 0; i < 3; ++i) {
          outside |= reinterpret_cast<Numbers>(numbers[i] - kFrom[i] > kRange[i]);
        }
        using Halves = uint64_t __attribute__((vector_size(16)));
        const auto halves = reinterpret_cast<Halves>(outside);
        if ((halves[0] | halves[1]) != 0) break;
      }
      for (size_t i = 0; i < 3; ++i) sums[i] += numbers[i];
    }
    Totals totals{uint64_t{sums[0][0]} + sums[0][3] + sums[1][2] + sums[2][1],
                  uint64_t{sums[0][1]} + sums[1][0] + sums[1][3] + sums[2][2]};
    for (; !kInRange && sequence != end; ++sequence) {
      totals.literals += sequence->num_literals;
      totals.copy_bytes += sequence->copy_bytes;
    }
    return {totals, sequence};
  }

  // Numbers of which a few bytes differ from one before: writes sequences of up to 7
  // literals that repeat up to 16 bytes by the latest offset, if many are next.
  [[gnu::always_inline]] bool WriteRepeats() {
    constexpr ptrdiff_t kLeast = 32;
    constexpr ptrdiff_t kMost = 512;
    constexpr size_t kPeriod = sizeof(uint64_t);
    const size_t offset = offsets_[0];
    if (offset != kPeriod && offset < kWordBytes) return false;
    if (static_cast<size_t>(out_ - place_.frame_begin) < offset) return false;
    const auto [totals, end] =
        Sums<true>(sequence_ + std::min(kMost, sequences_end_ - sequence_));
    if (end - sequence_ < kLeast || !Fit(totals)) return false;
    const ZstdSequence* sequence = sequence_;
    const uint8_t* literal = literal_;
    uint8_t* out = out_;
    for (; offset != kPeriod && sequence != end; ++sequence) {
      const size_t num_literals = sequence->num_literals;
      std::memcpy(out, literal, kPeriod);
      literal += num_literals;
      out += num_literals;
      CopyWord(out - offset, out);
      out += sequence->copy_bytes;
    }
    uint64_t last = Load64Bits(out - kPeriod);
    for (; sequence != end; ++sequence) {
      const size_t num_literals = sequence->num_literals;
      const size_t copy_bytes = sequence->copy_bytes;
      const uint64_t literals = Load64Bits(literal);
      std::memcpy(out, &literals, kPeriod);
      last = last >> (8 * num_literals & 63) | literals << ((0 - 8 * num_literals) & 63);
      literal += num_literals;
      out += num_literals;
      std::memcpy(out, &last, kPeriod);
      std::memcpy(out + kPeriod, &last, kPeriod);
      last = std::rotr(last, static_cast<int>(8 * copy_bytes & 63));
      out += copy_bytes;
    }
    sequence_ = end;
    literal_ = literal;
    out_ = out;
    return true;
  }

  // Writes sequences that fit, of which the first ones show of what kind they are.
  [[gnu::always_inline]] bool Write(const ZstdSequence* end) {
    constexpr ptrdiff_t kProbe = 32;
    const ptrdiff_t num_probed = std::min(kProbe, end - sequence_);
    ptrdiff_t num_repeats = 0;
    ptrdiff_t num_near = 0;
    for (ptrdiff_t i = 0; i < num_probed; ++i) {
      num_repeats += sequence_[i].offset_number <= 3 ? 1 : 0;
      num_near += sequence_[i].offset_number < 3 + kWordBytes ? 1 : 0;
    }
    if (offsets_[0] >= kWordBytes) num_near -= num_repeats;
    const bool is_mixed =
        std::min(num_repeats, num_probed - num_repeats) >= (num_probed + 7) / 8;
    const bool is_near = num_near > num_probed / 4 &&
                         out_ - place_.frame_begin >= static_cast<ptrdiff_t>(kWordBytes);
    return is_mixed  ? WriteFitting<false, ShuffledOffsets>(end)
           : is_near ? WriteFitting<true, BranchedOffsets>(end)
                     : WriteFitting<false, BranchedOffsets>(end);
  }

  // Writes sequences that fit. If they are near, the last word that was written stays in
  // a register: what was stored in parts cannot soon be loaded as a whole.
  template <bool kIsNear, typename Offsets>
  [[gnu::always_inline]] bool WriteFitting(const ZstdSequence* end) {
    const ZstdSequence* sequence = sequence_;
    const uint8_t* literal = literal_;
    uint8_t* const frame = place_.frame_begin;
    auto at = static_cast<size_t>(out_ - frame);
    Offsets offsets(offsets_);
    Word last{};  // NOLINT(misc-const-correctness)
    if constexpr (kIsNear) last = LoadWord(frame + at - kWordBytes);
    bool good = true;
    for (; sequence != end; ++sequence) {
      const size_t num_literals = sequence->num_literals;
      const size_t copy_bytes = sequence->copy_bytes;
      const size_t offset = offsets.Take(*sequence);
      const Word literals = LoadWord(literal);
      StoreWord(literals, frame + at);
      if (num_literals > kWordBytes) [[unlikely]] {
        CopyLiteral(literal, num_literals, frame + at);
        if constexpr (kIsNear) last = LoadWord(frame + at + num_literals - kWordBytes);
      } else if constexpr (kIsNear) {
        last = Append(last, literals, num_literals);
      }
      literal += num_literals;
      const size_t copy = at + num_literals;
      const size_t from = copy - offset;
      if (static_cast<int64_t>(from) < 0) [[unlikely]] {
        good = false;
        break;
      }
      at = copy + copy_bytes;
      if (copy_bytes > kWordBytes) [[unlikely]] {
        CopyMatch(offset, copy_bytes, frame + copy);
        if constexpr (kIsNear) last = LoadWord(frame + at - kWordBytes);
        continue;
      }
      Word word;
      if (kIsNear && offset <= kWordBytes) {
        word = Shuffle(last, kRepeatLast[offset]);
      } else {
        word = LoadWord(frame + from);
        if (!kIsNear && !Offsets::kBranches) {
          word = Shuffle(word, kRepeatFirst[AtMost(offset, kWordBytes)]);
        } else if (!kIsNear && offset < kWordBytes) {
          word = Shuffle(word, kRepeatFirst[offset]);
        }
      }
      StoreWord(word, frame + copy);
      if constexpr (kIsNear) last = Append(last, word, copy_bytes);
    }
    sequence_ = sequence;
    literal_ = literal;
    out_ = frame + at;
    offsets_ = offsets.last();
    return good;
  }

  // Writes sequences near the end of the memory, and checks each.
  [[gnu::noinline]] bool WriteChecked(const ZstdSequence* end) {
    BranchedOffsets offsets(offsets_);
    for (; sequence_ != end; ++sequence_) {
      const size_t num_literals = sequence_->num_literals;
      const size_t copy_bytes = sequence_->copy_bytes;
      const size_t offset = offsets.Take(*sequence_);
      const auto begin = static_cast<size_t>(out_ - place_.frame_begin);
      if (num_literals > static_cast<size_t>(literals_end_ - literal_) ||
          num_literals + copy_bytes > static_cast<size_t>(place_.end - out_) ||
          offset > begin + num_literals) {
        return false;
      }
      uint8_t* const copy = out_ + num_literals;
      if (place_.end - copy >= static_cast<ptrdiff_t>(copy_bytes) + kRoom) {
        CopyLiteral(literal_, num_literals, out_);
        CopyMatch(offset, copy_bytes, copy);
      } else {
        std::copy_n(literal_, num_literals, out_);
        for (size_t i = 0; i < copy_bytes; ++i) copy[i] = (copy - offset)[i];
      }
      literal_ += num_literals;
      out_ = copy + copy_bytes;
    }
    offsets_ = offsets.last();
    return true;
  }

  // The literals after the last sequence.
  uint8_t* WriteRest() const {
    const ptrdiff_t rest = literals_end_ - literal_;
    if (rest > place_.end - out_) return nullptr;
    return std::copy_n(literal_, rest, out_);
  }

  const ZstdSequence* sequence_;
  const ZstdSequence* sequences_end_;
  const uint8_t* literal_;
  const uint8_t* literals_end_;
  ZstdPlace place_;
  uint8_t* out_;
  ZstdOffsets offsets_;
};

[[gnu::always_inline]] inline uint8_t* Write(const ZstdContent& content,
                                             const ZstdPlace& place,
                                             ZstdOffsets* offsets) {
  Writer writer(content, place, *offsets);
  uint8_t* end = writer.WriteAll();
  *offsets = writer.offsets();
  return end;
}

#if defined(TORCHPARQUET_BMI2)
TORCHPARQUET_BMI2 uint8_t* WriteBmi2(const ZstdContent& content, const ZstdPlace& place,
                                     ZstdOffsets* offsets) {
  return Write(content, place, offsets);
}
#endif

}  // namespace

uint8_t* WriteContent(const ZstdContent& content, const ZstdPlace& place,
                      ZstdOffsets* offsets) {
#if defined(TORCHPARQUET_BMI2)
  if (ChosenInstructions() == Instructions::kAvx2) {
    return WriteBmi2(content, place, offsets);
  }
#endif
  return Write(content, place, offsets);
}

}  // namespace torchparquet::kernels
