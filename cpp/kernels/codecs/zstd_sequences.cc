#include "kernels/codecs/zstd_sequences.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <limits>
#include <utility>

#include "kernels/codecs/wide_copy.h"

namespace torchparquet::kernels {
namespace {

// The most bits of a sequence: of its numbers, and of the states after it.
constexpr int64_t kMaxNextBits = 9 + 8 + 9;
constexpr int64_t kMaxSequenceBits = 16 + 31 + 16 + kMaxNextBits;

// The sequences of one block, or of two, under way.
template <size_t kNumLanes>
struct ChainGroup {
  std::array<int64_t, kNumLanes> num_left;  // bits
  std::array<const uint8_t*, kNumLanes> begins;
  std::array<std::array<const ZstdCell*, kNumZstdCodes>, kNumLanes> cells;
  std::array<ZstdSequence*, kNumLanes> out;
  const ZstdStateTables* tables;  // of the first block

  ChainGroup(const std::array<ZstdCodedSequences*, kNumLanes>& coded, size_t first_lane,
             ZstdSequenceMemory* memory)
      : tables(&memory->tables[first_lane]) {
    for (size_t i = 0; i < kNumLanes; ++i) {
      begins[i] = coded[i]->bits.begin;
      num_left[i] = coded[i]->bits.num_left;
      cells[i] = coded[i]->cells;
      out[i] = memory->sequences[first_lane + i].data() + coded[i]->num_done;
    }
  }

  void Keep(size_t lane, size_t num_steps, ZstdCodedSequences* coded) const {
    coded->bits.num_left = num_left[lane];
    coded->cells = cells[lane];
    coded->num_done += num_steps;
  }

  // Decodes a sequence of one block and takes the next states, all from one word. Returns
  // false if it has too many bits for that, as few have: StepByNumbers is for them. Of
  // too few bits both make any sequence, and leave less than none. Where most lengths
  // have no bits of their own, a branch passes over them.
  template <bool kBmi2, bool kHasLong>
  [[gnu::always_inline]] bool Step(size_t lane) {
    auto& [literal, offset, match] = cells[lane];
    // The next bits end where the word does, but for up to 7: at bit 64 + `end`.
    const int64_t left = num_left[lane];
    const uint64_t word = Load64Bits(begins[lane] + (left >> 3) - 7);
    uint64_t end = static_cast<uint64_t>(left) | ~uint64_t{7};
    const auto take = [&](uint64_t count) {
      end -= count;
      return LowBits<kBmi2>(word >> (end & 63), count);
    };
    ZstdSequence& sequence = *out[lane];
    sequence.offset_number =
        offset->base + static_cast<uint32_t>(take(offset->extra_bits));
    uint32_t copy_bytes = match->base;
    uint32_t num_literals = literal->base;
    if (kHasLong || (literal->extra_bits | match->extra_bits) != 0) {
      copy_bytes += static_cast<uint32_t>(take(match->extra_bits));
      num_literals += static_cast<uint32_t>(take(literal->extra_bits));
      if (static_cast<int64_t>(end) < kMaxNextBits - 64) return false;
    }
    sequence.copy_bytes = copy_bytes;
    sequence.num_literals = num_literals;
    const ZstdStateTables& table = tables[lane];
    literal = &table[kLiteralLength].cells[literal->next + take(literal->next_bits)];
    match = &table[kMatchLength].cells[match->next + take(match->next_bits)];
    offset = &table[kOffset].cells[offset->next + take(offset->next_bits)];
    num_left[lane] = (left & ~int64_t{7}) + static_cast<int64_t>(end) + 8;
    return true;
  }

  // No states are after the last sequence.
  [[gnu::noinline]] void StepByNumbers(size_t lane, bool is_last = false) {
    auto& [literal, offset, match] = cells[lane];
    int64_t& left = num_left[lane];
    const auto take = [&](uint8_t count) {
      const BackwardBits bits{begins[lane], std::max<int64_t>(left, 0)};
      left -= count;
      return static_cast<uint32_t>(bits.Peek(count));
    };
    ZstdSequence& sequence = *out[lane];
    sequence.offset_number = offset->base + take(offset->extra_bits);
    sequence.copy_bytes = match->base + take(match->extra_bits);
    sequence.num_literals = literal->base + take(literal->extra_bits);
    if (!is_last) {
      const ZstdStateTables& table = tables[lane];
      literal = &table[kLiteralLength].cells[literal->next + take(literal->next_bits)];
      match = &table[kMatchLength].cells[match->next + take(match->next_bits)];
      offset = &table[kOffset].cells[offset->next + take(offset->next_bits)];
    }
  }

  // The steps that are certain to begin within the bits.
  size_t StepsWithin() const {
    int64_t least = num_left[0];
    for (size_t i = 1; i < kNumLanes; ++i) least = std::min(least, num_left[i]);
    return least < 0 ? 0 : static_cast<size_t>(least / kMaxSequenceBits) + 1;
  }

  // Makes that many steps, or those before one that is false, whose lane it returns.
  template <bool kBmi2, bool kHasLong>
  [[gnu::always_inline]] size_t RunSteps(size_t num_steps) {
    for (const ZstdSequence* end = out[0] + num_steps; out[0] != end;) {
#pragma GCC unroll 2
      for (size_t i = 0; i < kNumLanes; ++i) {
        if (!Step<kBmi2, kHasLong>(i)) [[unlikely]]
          return i;
      }
#pragma GCC unroll 2
      for (size_t i = 0; i < kNumLanes; ++i) ++out[i];
    }
    return kNumLanes;
  }

  // Makes that many steps in each block, or fewer if bits are lacking. What is under way
  // is a copy that no other function sees, so that it stays in registers.
  template <bool kBmi2>
  [[gnu::always_inline]] void Run(size_t num_steps) {
    const ZstdSequence* end = out[0] + num_steps;
    bool has_long = false;
    for (size_t i = 0; i < kNumLanes; ++i) {
      for (const ZstdStateTable& table : tables[i]) has_long |= table.has_long;
    }
    while (const size_t steps =
               std::min(static_cast<size_t>(end - out[0]), StepsWithin())) {
      ChainGroup group = *this;
      size_t lane = has_long ? group.template RunSteps<kBmi2, true>(steps)
                             : group.template RunSteps<kBmi2, false>(steps);
      *this = group;
      if (lane == kNumLanes) continue;
      for (; lane < kNumLanes; ++lane) StepByNumbers(lane);
      for (ZstdSequence*& next : out) ++next;
    }
  }
};

#if defined(TORCHPARQUET_BMI2)
template <size_t kNumLanes>
TORCHPARQUET_BMI2 void RunBmi2(ChainGroup<kNumLanes>* group, size_t num_steps) {
  group->template Run<true>(num_steps);
}
#endif

template <size_t kNumLanes>
void Run(ChainGroup<kNumLanes>* group, size_t num_steps) {
#if defined(TORCHPARQUET_BMI2)
  if (ChosenInstructions() == Instructions::kAvx2) return RunBmi2(group, num_steps);
#endif
  group->template Run<false>(num_steps);
}

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

bool ZstdCodedSequences::Begin(const ZstdStateTables& tables) {
  int num_bits = 0;
  for (const ZstdStateTable& table : tables) num_bits += table.log;
  if (bits.num_left < num_bits) return false;
  for (const ZstdCode code : {kLiteralLength, kOffset, kMatchLength}) {
    cells[code] = &tables[code].cells[bits.Take(tables[code].log)];
  }
  return true;
}

void DecodeSequences(const std::array<ZstdCodedSequences*, 2>& lanes,
                     ZstdSequenceMemory* memory) {
  const size_t num_left = std::min(lanes[0]->num_sequences - lanes[0]->num_done,
                                   lanes[1]->num_sequences - lanes[1]->num_done);
  if (num_left <= 1) return;
  ChainGroup<2> group(lanes, 0, memory);
  const ZstdSequence* begin = group.out[0];
  Run(&group, num_left - 1);
  const auto num_steps = static_cast<size_t>(group.out[0] - begin);
  for (size_t i = 0; i < 2; ++i) group.Keep(i, num_steps, lanes[i]);
}

bool FinishSequences(size_t lane, ZstdCodedSequences* coded, ZstdSequenceMemory* memory) {
  if (coded->num_sequences == 0) return true;
  ChainGroup<1> chain({coded}, lane, memory);
  Run(&chain, coded->num_sequences - coded->num_done - 1);
  if (chain.num_left[0] < 0) return false;
  chain.StepByNumbers(0, /*is_last=*/true);
  return chain.num_left[0] == 0;
}

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
