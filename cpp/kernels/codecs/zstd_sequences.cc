#include "kernels/codecs/zstd_sequences.h"

#include <algorithm>
#include <cstring>

#include "kernels/codecs/wide_copy.h"

namespace torchparquet::kernels {
namespace {

// The sequences of one block, or of two, under way. Those of both have the same number.
template <size_t kNumLanes>
struct ChainGroup {
  // Bits are counted from address 0, which takes one register instead of two.
  std::array<int64_t, kNumLanes> places;
  std::array<int64_t, kNumLanes> begins;
  std::array<std::array<uint64_t, kNumZstdCodes>, kNumLanes> states;
  const ZstdStateTables* tables;  // of the first block
  ZstdSequence* out;              // of the first block

  // The bits hold at least the first states.
  ChainGroup(const std::array<const ZstdCodedSequences*, 2>& lanes, size_t first_lane,
             ZstdSequenceMemory* memory)
      : tables(&memory->tables[first_lane]), out(memory->sequences[first_lane].data()) {
    for (size_t i = 0; i < kNumLanes; ++i) {
      BackwardBits bits = lanes[first_lane + i]->bits;
      for (const ZstdCode code : {kLiteralLength, kOffset, kMatchLength}) {
        states[i][code] = bits.Take(tables[i][code].log);
      }
      begins[i] = static_cast<int64_t>(8 * reinterpret_cast<uintptr_t>(bits.begin));
      places[i] = begins[i] + bits.num_left;
    }
  }

  static uint64_t Load(int64_t place) {
    return LoadBits(reinterpret_cast<const uint8_t*>(place >> 3) - 7);
  }

  // Decodes a sequence of one block, and takes the bits of the next states if it is not
  // the last one. Of too few bits it makes any sequence, and leaves less than none.
  [[gnu::always_inline]] void Step(size_t lane, bool is_last = false) {
    const ZstdStateTables& table = tables[lane];
    auto& state = states[lane];
    const ZstdCell& literal = table[kLiteralLength].cells[state[kLiteralLength]];
    const ZstdCell& offset = table[kOffset].cells[state[kOffset]];
    const ZstdCell& match = table[kMatchLength].cells[state[kMatchLength]];
    const uint32_t num_extra =
        uint32_t{literal.extra_bits} + offset.extra_bits + match.extra_bits;
    const uint32_t num_next =
        is_last ? 0 : uint32_t{literal.next_bits} + match.next_bits + offset.next_bits;
    uint64_t word = Load(places[lane]);
    auto at = static_cast<uint32_t>(56 + (places[lane] & 7));
    places[lane] -= num_extra + num_next;
    const auto take = [&](uint8_t count) {
      at -= count;
      return LowBits(word >> at, count);
    };
    const auto reload = [&](uint32_t num_still) {
      const int64_t place = std::max(places[lane] + num_still, begins[lane]);
      word = Load(place);
      at = static_cast<uint32_t>(56 + (place & 7));
    };
    const bool is_long = num_extra + num_next > 56;
    ZstdSequence& sequence = out[lane * ZstdSequenceMemory::kMaxSequences];
    sequence.offset_number = offset.base + static_cast<uint32_t>(take(offset.extra_bits));
    if (is_long) [[unlikely]] {
      reload(num_next + literal.extra_bits + match.extra_bits);
    }
    sequence.copy_bytes = match.base + static_cast<uint32_t>(take(match.extra_bits));
    sequence.num_literals =
        literal.base + static_cast<uint32_t>(take(literal.extra_bits));
    if (is_last) return;
    if (is_long) [[unlikely]]
      reload(num_next);
    state[kLiteralLength] = literal.next + take(literal.next_bits);
    state[kMatchLength] = match.next + take(match.next_bits);
    state[kOffset] = offset.next + take(offset.next_bits);
  }

  // Makes that many steps in each block, or fewer if bits are lacking.
  [[gnu::always_inline]] void Run(size_t num_steps) {
    ChainGroup group = *this;
    for (ZstdSequence* end = out + num_steps; group.out != end; ++group.out) {
      bool lacks = false;
      for (size_t i = 0; i < kNumLanes; ++i) lacks |= group.places[i] < group.begins[i];
      if (lacks) break;
#pragma GCC unroll 2
      for (size_t i = 0; i < kNumLanes; ++i) group.Step(i);
    }
    *this = group;
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

// The sequences from the one that `chain` is at. Returns whether they are all that the
// bits have.
bool Finish(size_t num_sequences, ChainGroup<1>* chain) {
  Run(chain, num_sequences - 1);
  if (chain->places[0] < chain->begins[0]) return false;
  chain->Step(0, /*is_last=*/true);
  return chain->places[0] == chain->begins[0];
}

// Whether the bits have the first states.
bool CanBegin(const ZstdCodedSequences& coded, const ZstdStateTables& tables) {
  if (coded.num_sequences == 0) return false;
  int num_bits = 0;
  for (const ZstdStateTable& table : tables) num_bits += table.log;
  return coded.bits.num_left >= num_bits;
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

std::array<bool, 2> DecodeSequences(const std::array<const ZstdCodedSequences*, 2>& lanes,
                                    ZstdSequenceMemory* memory) {
  std::array<bool, 2> begins;
  for (size_t i = 0; i < 2; ++i) begins[i] = CanBegin(*lanes[i], memory->tables[i]);
  std::array<bool, 2> good;
  for (size_t i = 0; i < 2; ++i) good[i] = begins[i] || lanes[i]->num_sequences == 0;
  if (!begins[0] || !begins[1]) {
    for (size_t i = 0; i < 2; ++i) {
      if (!begins[i]) continue;
      ChainGroup<1> chain(lanes, i, memory);
      good[i] = Finish(lanes[i]->num_sequences, &chain);
    }
    return good;
  }
  ChainGroup<2> group(lanes, 0, memory);
  const ZstdSequence* begin = group.out;
  Run(&group, std::min(lanes[0]->num_sequences, lanes[1]->num_sequences) - 1);
  const auto num_done = static_cast<size_t>(group.out - begin);
  for (size_t i = 0; i < 2; ++i) {
    ChainGroup<1> chain(lanes, i, memory);
    chain.places = {group.places[i]};
    chain.states = {group.states[i]};
    chain.out += num_done;
    good[i] = Finish(lanes[i]->num_sequences - num_done, &chain);
  }
  return good;
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
