#include "kernels/codecs/zstd_sequences.h"

#include <algorithm>

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

}  // namespace torchparquet::kernels
