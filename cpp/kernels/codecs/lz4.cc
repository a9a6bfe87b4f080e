#include "kernels/codecs/lz4.h"

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <limits>

#include "kernels/codecs/wide_copy.h"

namespace torchparquet::kernels {
namespace {

// An element of a block is a sequence: a token, literals, and a match. The last one has
// no match. The token holds both lengths; 15 says that more bytes of a length follow.
constexpr size_t kMoreBytes = 15;
constexpr size_t kMinMatch = 4;
constexpr size_t kOffsetBytes = 2;
// A match ends before the last bytes of a block, and begins before the last of these.
constexpr ptrdiff_t kLastLiterals = 5;
constexpr ptrdiff_t kLastMatchBegin = 12;

// Adds the bytes of a length that follow at `*in`. Returns false if the block ends there.
[[gnu::always_inline]] inline bool ReadMore(const uint8_t* in_end, const uint8_t** in,
                                            size_t* length) {
  if (*in == in_end) return false;
  uint8_t byte = *(*in)++;
  *length += byte;
  if (byte != 255) [[likely]]
    return true;
  // The length of a literal of a whole page has hundreds of bytes of 255.
  constexpr uint64_t kAllOnes = std::numeric_limits<uint64_t>::max();
  for (uint64_t bytes; in_end - *in >= static_cast<ptrdiff_t>(sizeof(bytes));) {
    std::memcpy(&bytes, *in, sizeof(bytes));
    if (bytes != kAllOnes) break;
    *in += sizeof(bytes);
    *length += sizeof(bytes) * 255;
  }
  do {
    if (*in == in_end) return false;
    byte = *(*in)++;
    *length += byte;
  } while (byte == 255);
  return true;
}

// As memcpy. Reads and writes up to the room of a step more, so that few literals need a
// second turn, and few turns are mispredicted.
inline void CopyLiterals(const uint8_t* in, size_t num_literals, uint8_t* out) {
  constexpr size_t kMaxWordwise = 256;
  if (num_literals > kMaxWordwise) {
    std::memcpy(out, in, num_literals);
    return;
  }
  size_t i = 0;
  do {
    for (size_t j = 0; j < kStepRoom; j += kWordBytes) CopyWord(in + i + j, out + i + j);
    i += kStepRoom;
  } while (i < num_literals);
}

// Any sequence that ends before the room of a step does.
BlockPlace StepSequence(BlockPlace place, const BlockBounds& bounds) {
  const uint8_t* in = place.in;
  uint8_t* out = place.out;
  const size_t tag = in[-1];
  size_t num_literals = tag >> 4;
  size_t match_bytes = (tag & 15) + kMinMatch;
  if (num_literals == kMoreBytes) {
    if (!ReadMore(bounds.in_end, &in, &num_literals)) return kDamagedPlace;
    if (num_literals + kStepRoom > static_cast<size_t>(bounds.in_end - in) ||
        num_literals + kStepRoom > static_cast<size_t>(bounds.out_end - out)) {
      return place;
    }
  }
  CopyLiterals(in, num_literals, out);
  in += num_literals;
  out += num_literals;
  const size_t offset = Load16Bits(in);
  in += kOffsetBytes;
  if (match_bytes == kMoreBytes + kMinMatch &&
      !ReadMore(bounds.in_end, &in, &match_bytes)) {
    return kDamagedPlace;
  }
  // 0 is no offset, and becomes the largest number here.
  if (offset - 1 >= static_cast<size_t>(out - bounds.out_begin)) return kDamagedPlace;
  if (in == bounds.in_end ||
      match_bytes + 2 * kWordBytes > static_cast<size_t>(bounds.out_end - out)) {
    return place;
  }
  CopyMatch(offset, match_bytes, out);
  return {.in = in + 1, .out = out + match_bytes};
}

bool FinishSequences(const uint8_t* in, uint8_t* out, const BlockBounds& bounds) {
  while (in != bounds.in_end) {
    const size_t token = *in++;
    size_t num_literals = token >> 4;
    if (num_literals == kMoreBytes && !ReadMore(bounds.in_end, &in, &num_literals)) {
      return false;
    }
    if (num_literals > static_cast<size_t>(bounds.in_end - in) ||
        num_literals > static_cast<size_t>(bounds.out_end - out)) {
      return false;
    }
    std::copy_n(in, num_literals, out);
    in += num_literals;
    out += num_literals;
    if (in == bounds.in_end) return out == bounds.out_end;
    constexpr ptrdiff_t kLeastIn = kOffsetBytes + 1 + kLastLiterals;
    if (bounds.in_end - in < kLeastIn || bounds.out_end - out < kLastMatchBegin) {
      return false;
    }
    const size_t offset = Load16Bits(in);
    in += kOffsetBytes;
    size_t match_bytes = (token & 15) + kMinMatch;
    if ((token & 15) == kMoreBytes && !ReadMore(bounds.in_end, &in, &match_bytes)) {
      return false;
    }
    if (offset - 1 >= static_cast<size_t>(out - bounds.out_begin) ||
        match_bytes > static_cast<size_t>(bounds.out_end - kLastLiterals - out)) {
      return false;
    }
    // A page of one value is one match up to its end: only the last bytes go one by one.
    size_t i = 0;
    if (match_bytes > 4 * kWordBytes) {
      i = match_bytes - 2 * kWordBytes;
      CopyMatch(offset, i, out);
    }
    for (; i < match_bytes; ++i) out[i] = (out - offset)[i];
    out += match_bytes;
  }
  return false;
}

// Makes the compiler compute `value` here, in a register. Otherwise it makes one branch
// of two, or one sum for each address, in more instructions; and these bound a pair.
template <typename T>
[[gnu::always_inline]] inline T ComputeHere(T value) {
  asm volatile("" : "+r"(value));
  return value;
}

// Steps over a sequence with up to `kMaxLiterals` literals, and a match of up to a word
// that does not repeat itself. Returns false, and leaves the place, for any other. The
// literals begin `kSkipped` bytes after `begin`.
template <size_t kMaxLiterals, size_t kSkipped>
[[gnu::always_inline]] inline bool StepCommon(const uint8_t* begin, size_t num_literals,
                                              BlockPlace& place, size_t& tag,
                                              const BlockBounds& bounds) {
  if (num_literals > kMaxLiterals) [[unlikely]]
    return false;
  const uint8_t* in = ComputeHere(begin + num_literals);
  const size_t next_tag = ComputeHere(size_t{in[kSkipped + kOffsetBytes]});
  const size_t offset = Load16Bits(in + kSkipped);
  const size_t more_bytes = tag & 15;
  if (more_bytes > kWordBytes - kMinMatch) [[unlikely]]
    return false;
  const size_t match_bytes = ComputeHere(more_bytes + kMinMatch);
  if (offset < match_bytes) [[unlikely]]
    return false;  // repeats itself, or is 0
  uint8_t* out = place.out + num_literals;
  // As numbers, since an offset may lead out of the block.
  const uintptr_t source = reinterpret_cast<uintptr_t>(out) - offset;
  if (source < reinterpret_cast<uintptr_t>(bounds.out_begin)) [[unlikely]]
    return false;
  for (size_t i = 0; i < kMaxLiterals; i += kWordBytes) {
    CopyWord(begin + kSkipped + i, place.out + i);
  }
  CopyWord(reinterpret_cast<const uint8_t*>(source), out);
  place = {.in = in + kSkipped + kOffsetBytes + 1, .out = out + match_bytes};
  tag = next_tag;
  return true;
}

// Sequences of up to 14 literals and a match of up to 16 bytes are the common kind.
struct Lz4 {
  static constexpr size_t kMaxLiterals = 14;
  static constexpr ptrdiff_t kMaxStep = 2 * kWordBytes;
  static_assert(kMaxLiterals + kWordBytes <= kMaxStep &&
                kMaxLiterals + kOffsetBytes + 1 <= kMaxStep);

  [[gnu::always_inline]] static bool Step(BlockPlace& place, size_t& tag,
                                          const BlockBounds& bounds) {
    return StepCommon<kMaxLiterals, 0>(place.in, tag >> 4, place, tag, bounds);
  }
  static BlockPlace StepAny(BlockPlace place, const BlockBounds& bounds) {
    return StepSequence(place, bounds);
  }
  static bool Finish(const uint8_t* in, uint8_t* out, const BlockBounds& bounds) {
    return FinishSequences(in, out, bounds);
  }
};

// The same with more literals, without a branch that depends on whether their number has
// a second byte. Slower where such numbers are rare, since it takes more instructions.
template <size_t kWords>
struct Lz4LongLiterals : Lz4 {
  static constexpr size_t kMaxLiterals = kWords * kWordBytes;
  static constexpr ptrdiff_t kMaxStep = std::bit_ceil((kWords + 1) * kWordBytes);
  static_assert((kWords + 1) * kWordBytes <= kStepRoom &&
                1 + kMaxLiterals + kOffsetBytes + 1 <= kStepRoom);

  [[gnu::always_inline]] static bool Step(BlockPlace& place, size_t& tag,
                                          const BlockBounds& bounds) {
    // NOLINTBEGIN(misc-const-correctness): the instructions write them. Without a second
    // byte they are 0 and -1.
    size_t second_byte = place.in[0];
    ptrdiff_t back = 0;
    // NOLINTEND(misc-const-correctness)
#if defined(__x86_64__)
    // Compilers make a branch of the code below: 0.8 of the speed.
    asm("cmpb $0xf0, %b[tag]\n\t"
        "cmovb %[zero], %[second_byte]\n\t"
        "sbb %[back], %[back]"
        : [second_byte] "+&r"(second_byte), [back] "=&r"(back)
        : [tag] "r"(tag), [zero] "r"(size_t{0})
        : "cc");
#else
    const bool has_second_byte = tag >= kMoreBytes << 4;
    second_byte = has_second_byte ? second_byte : 0;
    back = has_second_byte ? 0 : -1;
#endif
    return StepCommon<kMaxLiterals, 1>(place.in + back, (tag >> 4) + second_byte, place,
                                       tag, bounds);
  }
};

using Lz4Lanes = BlockLanes<Lz4>;

// Continues a block whose matches mostly begin within a word before their place, such as
// sorted numbers. A load that overlaps stores still under way waits for them, about 20
// cycles. So the last word stays in a register, and such matches are shuffled out of it:
// 1.8 to 3.2 times the speed.
StepOutcome RunNear(BlockPlace* begin, const BlockBounds& bounds) {
  BlockPlace place = *begin;
  const auto step = [&](size_t* tag, Word* last) {
    const size_t num_literals = *tag >> 4;
    const size_t match_bytes = (*tag & 15) + kMinMatch;
    const uint8_t* in = place.in + num_literals;
    const size_t next_tag = ComputeHere(size_t{in[kOffsetBytes]});
    const size_t offset = Load16Bits(in);
    if (num_literals > Lz4::kMaxLiterals || match_bytes > kWordBytes) return false;
    uint8_t* out = place.out + num_literals;
    if (offset - 1 >= static_cast<size_t>(out - bounds.out_begin)) return false;
    const Word literals = LoadWord(place.in);
    StoreWord(literals, place.out);
    *last = Append(*last, literals, num_literals);
    const Word match = offset <= kWordBytes ? Shuffle(*last, kRepeatLast[offset])
                                            : LoadWord(out - offset);
    StoreWord(match, out);
    *last = Append(*last, match, match_bytes);
    place = {.in = in + kOffsetBytes + 1, .out = out + match_bytes};
    *tag = next_tag;
    return true;
  };
  StepOutcome outcome = StepOutcome::kDone;
  while (outcome == StepOutcome::kDone) {
    int64_t steps = Lz4Lanes::StepsWithin(place, bounds);
    if (steps == 0) break;
    size_t tag = place.in[-1];
    Word last = LoadWord(place.out - kWordBytes);
    while (steps > 0 && step(&tag, &last)) --steps;
    if (steps > 0) outcome = Lz4Lanes::StepAny(place, bounds);
  }
  *begin = place;
  return outcome;
}

// Returns whether most matches of the next sequences are near.
bool IsNear(const BlockPlace& place, const BlockBounds& bounds) {
  if (place.out - bounds.out_begin < static_cast<ptrdiff_t>(kWordBytes)) return false;
  constexpr size_t kNumSequences = 32;
  const uint8_t* in = place.in - 1;
  size_t num_near = 0;
  for (size_t i = 0; i < kNumSequences; ++i) {
    if (bounds.in_end - in <= kStepRoom) return false;
    const size_t token = *in++;
    const size_t num_literals = token >> 4;
    size_t match_bytes = token & 15;
    // Long lengths are rare in such blocks.
    if (num_literals == kMoreBytes) return false;
    in += num_literals;
    num_near += Load16Bits(in) <= kWordBytes ? 1 : 0;
    in += kOffsetBytes;
    if (match_bytes == kMoreBytes && !ReadMore(bounds.in_end, &in, &match_bytes)) {
      return false;
    }
  }
  return num_near >= kNumSequences / 2;
}

// Sequences at the beginning are unlike later ones, which find more matches. The kind of
// a block is that of the sequences after these.
int64_t FirstSteps(const CompressedBlock& block) {
  return std::min<int64_t>(1024, std::ssize(block.out) / 64);
}

// Returns whether most bytes are in long literals, from the first sequence on.
bool HardlyCompresses(const CompressedBlock& block) {
  return block.out.size() < block.bytes.size() + block.bytes.size() / 8;
}
// Such literals are of all lengths. To copy 80 bytes for each takes less time than to
// mispredict a branch on the length: 1.2 to 2.3 times the speed.
using HardlyCompressedLanes = BlockLanes<Lz4LongLiterals<5>>;

// Continues a block after its first steps.
bool Continue(BlockPlace place, const BlockBounds& bounds) {
  const StepOutcome outcome =
      IsNear(place, bounds) ? RunNear(&place, bounds) : Lz4Lanes::RunOne(&place, bounds);
  return outcome != StepOutcome::kDamaged &&
         FinishSequences(place.in - 1, place.out, bounds);
}

BlockBounds BoundsOf(const CompressedBlock& block) {
  return {.in_end = block.bytes.data() + block.bytes.size(),
          .out_begin = block.out.data(),
          .out_end = block.out.data() + block.out.size()};
}

}  // namespace

bool DecompressLz4(const CompressedBlock& block) {
  // No content is one empty sequence, as every compressor writes it.
  if (block.out.empty()) return block.bytes.size() == 1 && block.bytes.front() == 0;
  const BlockBounds bounds = BoundsOf(block);
  const uint8_t* in = block.bytes.data();
  if (!Lz4Lanes::HasRoom(bounds, in))
    return FinishSequences(in, bounds.out_begin, bounds);
  if (HardlyCompresses(block)) return HardlyCompressedLanes::Decompress(bounds, in);
  BlockPlace place = Lz4Lanes::BeginBlock(bounds, in);
  switch (Lz4Lanes::RunOne(&place, bounds, FirstSteps(block))) {
    case StepOutcome::kDamaged:
      return false;
    case StepOutcome::kNoRoom:
      return FinishSequences(place.in - 1, place.out, bounds);
    case StepOutcome::kDone:
      break;
  }
  return Continue(place, bounds);
}

std::array<bool, 2> DecompressLz4Pair(const CompressedBlock& first,
                                      const CompressedBlock& second) {
  BlockPair pair;
  pair.bounds = {BoundsOf(first), BoundsOf(second)};
  if (!Lz4Lanes::HasRoom(pair.bounds[0], first.bytes.data()) ||
      !Lz4Lanes::HasRoom(pair.bounds[1], second.bytes.data())) {
    return {DecompressLz4(first), DecompressLz4(second)};
  }
  pair.places = {Lz4Lanes::BeginBlock(pair.bounds[0], first.bytes.data()),
                 Lz4Lanes::BeginBlock(pair.bounds[1], second.bytes.data())};
  if (HardlyCompresses(first) && HardlyCompresses(second)) {
    HardlyCompressedLanes::RunPair(&pair);
    return HardlyCompressedLanes::FinishPair(&pair);
  }
  Lz4Lanes::RunPair(&pair, FirstSteps(first));
  // Near matches wait for stores, which a second block does not shorten.
  if (IsNear(pair.places[0], pair.bounds[0]) || IsNear(pair.places[1], pair.bounds[1])) {
    return {pair.good[0] && Continue(pair.places[0], pair.bounds[0]),
            pair.good[1] && Continue(pair.places[1], pair.bounds[1])};
  }
  constexpr int64_t kTrialSteps = 256;
  constexpr int64_t kMaxUncommon = kTrialSteps / 16;
  if (Lz4Lanes::RunPair(&pair, kTrialSteps) > kMaxUncommon) {
    BlockLanes<Lz4LongLiterals<2>>::RunPair(&pair);
  } else {
    Lz4Lanes::RunPair(&pair);
  }
  return Lz4Lanes::FinishPair(&pair);
}

}  // namespace torchparquet::kernels
