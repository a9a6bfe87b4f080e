#include "kernels/codecs/zstd_sequences.h"

#include <algorithm>

#include "kernels/codecs/wide_copy.h"

namespace torchparquet::kernels {
namespace {

// The most bits of a sequence: of its numbers, and of the states after it.
constexpr int64_t kMaxNextBits = 9 + 8 + 9;
constexpr int64_t kMaxSequenceBits = 16 + 31 + 16 + kMaxNextBits;

// The sequences of one block, or of two, under way.
template <size_t kNumLanes>
struct ChainGroup {
  // Bits are counted from address 0, which takes one register instead of two.
  std::array<int64_t, kNumLanes> places;
  std::array<int64_t, kNumLanes> begins;
  std::array<std::array<uint64_t, kNumZstdCodes>, kNumLanes> states;
  std::array<ZstdSequence*, kNumLanes> out;
  const ZstdStateTables* tables;  // of the first block

  ChainGroup(const std::array<ZstdCodedSequences*, kNumLanes>& coded, size_t first_lane,
             ZstdSequenceMemory* memory)
      : tables(&memory->tables[first_lane]) {
    for (size_t i = 0; i < kNumLanes; ++i) {
      const BackwardBits& bits = coded[i]->bits;
      begins[i] = static_cast<int64_t>(8 * reinterpret_cast<uintptr_t>(bits.begin));
      places[i] = begins[i] + bits.num_left;
      states[i] = coded[i]->states;
      out[i] = memory->sequences[first_lane + i].data() + coded[i]->num_done;
    }
  }

  void Keep(size_t lane, size_t num_steps, ZstdCodedSequences* coded) const {
    coded->bits.num_left = places[lane] - begins[lane];
    coded->states = states[lane];
    coded->num_done += num_steps;
  }

  // Decodes a sequence of one block and takes the next states, all from one word. Returns
  // false if it has too many bits for that, as few have: StepByNumbers is for them. Of
  // too few bits both make any sequence, and leave less than none.
  [[gnu::always_inline]] bool Step(size_t lane) {
    const ZstdStateTables& table = tables[lane];
    auto& state = states[lane];
    const ZstdCell& literal = table[kLiteralLength].cells[state[kLiteralLength]];
    const ZstdCell& offset = table[kOffset].cells[state[kOffset]];
    const ZstdCell& match = table[kMatchLength].cells[state[kMatchLength]];
    const int64_t byte = places[lane] >> 3;
    const uint64_t word = Load64Bits(reinterpret_cast<const uint8_t*>(byte) - 7);
    int64_t at = 56 | (places[lane] & 7);
    const auto take = [&](uint8_t count) {
      at -= count;
      return LowBits(word >> (at & 63), count);
    };
    ZstdSequence& sequence = *out[lane];
    sequence.offset_number = offset.base + static_cast<uint32_t>(take(offset.extra_bits));
    sequence.copy_bytes = match.base + static_cast<uint32_t>(take(match.extra_bits));
    sequence.num_literals =
        literal.base + static_cast<uint32_t>(take(literal.extra_bits));
    if (at < kMaxNextBits) [[unlikely]]
      return false;
    state[kLiteralLength] = literal.next + take(literal.next_bits);
    state[kMatchLength] = match.next + take(match.next_bits);
    state[kOffset] = offset.next + take(offset.next_bits);
    places[lane] = 8 * byte - 56 + at;
    return true;
  }

  // No states are after the last sequence.
  [[gnu::noinline]] void StepByNumbers(size_t lane, bool is_last = false) {
    auto& state = states[lane];
    const auto take = [&](uint8_t count) {
      const BackwardBits bits{reinterpret_cast<const uint8_t*>(begins[lane] >> 3),
                              std::max<int64_t>(places[lane] - begins[lane], 0)};
      places[lane] -= count;
      return static_cast<uint32_t>(bits.Peek(count));
    };
    std::array<const ZstdCell*, kNumZstdCodes> cells;
    for (const ZstdCode code : {kLiteralLength, kOffset, kMatchLength}) {
      cells[code] = &tables[lane][code].cells[state[code]];
    }
    ZstdSequence& sequence = *out[lane];
    sequence.offset_number = cells[kOffset]->base + take(cells[kOffset]->extra_bits);
    sequence.copy_bytes =
        cells[kMatchLength]->base + take(cells[kMatchLength]->extra_bits);
    sequence.num_literals =
        cells[kLiteralLength]->base + take(cells[kLiteralLength]->extra_bits);
    if (is_last) return;
    for (const ZstdCode code : {kLiteralLength, kMatchLength, kOffset}) {
      state[code] = cells[code]->next + take(cells[code]->next_bits);
    }
  }

  // The steps that are certain to begin within the bits.
  size_t StepsWithin() const {
    int64_t least = places[0] - begins[0];
    for (size_t i = 1; i < kNumLanes; ++i) least = std::min(least, places[i] - begins[i]);
    return least < 0 ? 0 : static_cast<size_t>(least / kMaxSequenceBits) + 1;
  }

  // Makes that many steps, or those before one that is false, whose lane it returns.
  [[gnu::always_inline]] size_t RunSteps(size_t num_steps) {
    for (const ZstdSequence* end = out[0] + num_steps; out[0] != end;) {
#pragma GCC unroll 2
      for (size_t i = 0; i < kNumLanes; ++i) {
        if (!Step(i)) [[unlikely]]
          return i;
      }
#pragma GCC unroll 2
      for (size_t i = 0; i < kNumLanes; ++i) ++out[i];
    }
    return kNumLanes;
  }

  // Makes that many steps in each block, or fewer if bits are lacking. What is under way
  // is a copy that no other function sees, so that it stays in registers.
  [[gnu::always_inline]] void Run(size_t num_steps) {
    const ZstdSequence* end = out[0] + num_steps;
    while (const size_t steps =
               std::min(static_cast<size_t>(end - out[0]), StepsWithin())) {
      ChainGroup group = *this;
      size_t lane = group.RunSteps(steps);
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
  group->Run(num_steps);
}
#endif

template <size_t kNumLanes>
void Run(ChainGroup<kNumLanes>* group, size_t num_steps) {
#if defined(TORCHPARQUET_BMI2)
  if (ChosenInstructions() == Instructions::kAvx2) return RunBmi2(group, num_steps);
#endif
  group->Run(num_steps);
}

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
    constexpr ptrdiff_t kProbe = 32;
    constexpr ptrdiff_t kStretch = 1024;
    while (sequence_ != sequences_end_) {
      num_near_ = 0;
      if (!Run<false>(kProbe)) return nullptr;
      const bool is_near = num_near_ > kProbe / 4 && sequence_ != sequences_end_;
      if (!(is_near ? Run<true>(kStretch) : Run<false>(kStretch))) return nullptr;
    }
    return WriteRest();
  }

 private:
  // Copies may write as many bytes more.
  static constexpr ptrdiff_t kRoom = 48;

  // The offset that a sequence means, which becomes the latest. 0 if it means none.
  [[gnu::always_inline]] static size_t TakeOffset(const ZstdSequence& sequence,
                                                  ZstdOffsets* offsets) {
    const size_t number = sequence.offset_number;
    auto& [first, second, third] = *offsets;
    size_t offset = number - 3;
    if (number <= 3) {
      // Without literals, the latest offset would only continue the copy before.
      const size_t index = number + (sequence.num_literals == 0 ? 1 : 0);
      if (index == 1) return first;
      offset = index == 2 ? second : index == 3 ? third : first - 1;
      third = index == 2 ? third : second;
    } else {
      third = second;
    }
    second = first;
    first = offset;
    return offset;
  }

  // Writes up to that many sequences. If they are near, the last word that was written
  // stays in a register: what was stored in parts cannot soon be loaded as a whole.
  template <bool kIsNear>
  [[gnu::always_inline]] bool Run(ptrdiff_t max_sequences) {
    const ZstdSequence* sequence = sequence_;
    const ZstdSequence* end =
        sequence + std::min<ptrdiff_t>(max_sequences, sequences_end_ - sequence);
    const uint8_t* literal = literal_;
    const uint8_t* const literals_end = literals_end_;
    uint8_t* out = out_;
    // Beyond it, bytes are written one by one.
    uint8_t* const wide_end =
        place_.end - place_.out > kRoom ? place_.end - kRoom : place_.out;
    ZstdOffsets offsets = offsets_;
    ptrdiff_t num_near = 0;
    Word last{};  // NOLINT(misc-const-correctness)
    if constexpr (kIsNear) last = LoadWord(out - kWordBytes);
    bool good = true;
    for (; sequence != end; ++sequence) {
      const size_t num_literals = sequence->num_literals;
      const size_t copy_bytes = sequence->copy_bytes;
      const size_t offset = TakeOffset(*sequence, &offsets);
      const uint8_t* next_literal = literal + num_literals;
      uint8_t* copy = out + num_literals;
      uint8_t* next = copy + copy_bytes;
      // 0 is no offset, and becomes the largest number here.
      if (next_literal > literals_end || next > place_.end ||
          offset - 1 >= static_cast<size_t>(copy - place_.frame_begin)) [[unlikely]] {
        good = false;
        break;
      }
      if (next > wide_end) [[unlikely]] {
        std::copy_n(literal, num_literals, out);
        for (size_t i = 0; i < copy_bytes; ++i) copy[i] = (copy - offset)[i];
        literal = next_literal;
        out = next;
        continue;
      }
      const Word literals = LoadWord(literal);
      StoreWord(literals, out);
      if (num_literals > kWordBytes) [[unlikely]] {
        CopyLiteral(literal, num_literals, out);
        if constexpr (kIsNear) last = LoadWord(copy - kWordBytes);
      } else if constexpr (kIsNear) {
        last = Append(last, literals, num_literals);
      }
      literal = next_literal;
      out = next;
      if (copy_bytes > kWordBytes) [[unlikely]] {
        CopyMatch(offset, copy_bytes, copy);
        if constexpr (kIsNear) last = LoadWord(next - kWordBytes);
        continue;
      }
      Word word;
      if (kIsNear && offset <= kWordBytes) {
        word = Shuffle(last, kRepeatLast[offset]);
      } else {
        word = LoadWord(copy - offset);
        if (!kIsNear && offset < kWordBytes) {
          word = Shuffle(word, kRepeatFirst[offset]);
          ++num_near;
        }
      }
      StoreWord(word, copy);
      if constexpr (kIsNear) last = Append(last, word, copy_bytes);
    }
    sequence_ = sequence;
    literal_ = literal;
    out_ = out;
    offsets_ = offsets;
    num_near_ = num_near;
    return good;
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
  ptrdiff_t num_near_ = 0;
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
    states[code] = bits.Take(tables[code].log);
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
  if (chain.places[0] < chain.begins[0]) return false;
  chain.StepByNumbers(0, /*is_last=*/true);
  return chain.places[0] == chain.begins[0];
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
