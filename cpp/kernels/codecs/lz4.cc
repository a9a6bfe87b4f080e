#include "kernels/codecs/lz4.h"

#include <algorithm>
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
  // The length of a literal of a whole page has hundreds of bytes of 255.
  constexpr uint64_t kAllOnes = std::numeric_limits<uint64_t>::max();
  for (uint64_t bytes; in_end - *in >= static_cast<ptrdiff_t>(sizeof(bytes));) {
    std::memcpy(&bytes, *in, sizeof(bytes));
    if (bytes != kAllOnes) break;
    *in += sizeof(bytes);
    *length += sizeof(bytes) * 255;
  }
  uint8_t byte;
  do {
    if (*in == in_end) return false;
    byte = *(*in)++;
    *length += byte;
  } while (byte == 255);
  return true;
}

// Any sequence that ends before the room of a step does.
[[gnu::always_inline]] inline StepOutcome StepSequence(BlockPlace* place,
                                                       const BlockBounds& bounds) {
  const uint8_t* in = place->in;
  uint8_t* out = place->out;
  size_t num_literals = place->tag >> 4;
  size_t match_bytes = (place->tag & 15) + kMinMatch;
  if (num_literals == kMoreBytes) {
    if (!ReadMore(bounds.in_end, &in, &num_literals)) return StepOutcome::kDamaged;
    if (num_literals + kStepRoom > static_cast<size_t>(bounds.in_end - in) ||
        num_literals + kStepRoom > static_cast<size_t>(bounds.out_end - out)) {
      return StepOutcome::kNoRoom;
    }
  }
  CopyLiteral(in, num_literals, out);
  in += num_literals;
  out += num_literals;
  const size_t offset = Load16Bits(in);
  in += kOffsetBytes;
  if (match_bytes == kMoreBytes + kMinMatch &&
      !ReadMore(bounds.in_end, &in, &match_bytes)) {
    return StepOutcome::kDamaged;
  }
  // 0 is no offset, and becomes the largest number here.
  if (offset - 1 >= static_cast<size_t>(out - bounds.out_begin)) {
    return StepOutcome::kDamaged;
  }
  if (in == bounds.in_end ||
      match_bytes + 2 * kWordBytes > static_cast<size_t>(bounds.out_end - out)) {
    return StepOutcome::kNoRoom;
  }
  CopyMatch(offset, match_bytes, out);
  *place = {.in = in + 1, .out = out + match_bytes, .tag = *in};
  return StepOutcome::kDone;
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

// Sequences of up to 14 literals and a match of up to 16 bytes are the common kind.
struct Lz4 {
  static constexpr size_t kMaxLiterals = 14;
  static constexpr ptrdiff_t kMaxStep = 2 * kWordBytes;
  static_assert(kMaxLiterals + kWordBytes <= kMaxStep &&
                kMaxLiterals + kOffsetBytes + 1 <= kMaxStep);

  [[gnu::always_inline]] static bool Step(BlockPlace& place, const BlockBounds& bounds) {
    const size_t num_literals = place.tag >> 4;
    const size_t match_bytes = (place.tag & 15) + kMinMatch;
    const uint8_t* in = place.in + num_literals;
    const size_t next_tag = in[kOffsetBytes];
    const size_t offset = Load16Bits(in);
    if (num_literals > kMaxLiterals) [[unlikely]]
      return false;
    if (match_bytes > kWordBytes) [[unlikely]]
      return false;
    if (offset < match_bytes) [[unlikely]]
      return false;  // repeats itself, or is 0
    uint8_t* out = place.out + num_literals;
    // As numbers, since an offset may lead out of the block.
    const uintptr_t source = reinterpret_cast<uintptr_t>(out) - offset;
    if (source < reinterpret_cast<uintptr_t>(bounds.out_begin)) [[unlikely]]
      return false;
    CopyWord(place.in, place.out);
    CopyWord(reinterpret_cast<const uint8_t*>(source), out);
    place = {.in = in + kOffsetBytes + 1, .out = out + match_bytes, .tag = next_tag};
    return true;
  }
  static StepOutcome StepAny(BlockPlace* place, const BlockBounds& bounds) {
    return StepSequence(place, bounds);
  }
  static bool Finish(const uint8_t* in, uint8_t* out, const BlockBounds& bounds) {
    return FinishSequences(in, out, bounds);
  }
};

// The same with up to 32 literals, without a branch that depends on whether their number
// has a second byte. Alone it is slower, since more depends on the tag. In a pair it is
// the faster one where such numbers are frequent: 1.8 times for text.
struct Lz4LongLiterals : Lz4 {
  static constexpr size_t kMaxLiterals = 2 * kWordBytes;
  static constexpr ptrdiff_t kMaxStep = 4 * kWordBytes;
  static_assert(kMaxLiterals + kWordBytes <= kMaxStep &&
                1 + kMaxLiterals + kOffsetBytes + 1 <= kMaxStep);

  [[gnu::always_inline]] static bool Step(BlockPlace& place, const BlockBounds& bounds) {
    const size_t has_byte = place.tag >= kMoreBytes << 4 ? 1 : 0;
    const size_t num_literals = (place.tag >> 4) + (place.in[0] & -has_byte);
    const size_t match_bytes = (place.tag & 15) + kMinMatch;
    const uint8_t* literals = place.in + has_byte;
    if (num_literals > kMaxLiterals) [[unlikely]]
      return false;
    if (match_bytes > kWordBytes) [[unlikely]]
      return false;
    const uint8_t* in = literals + num_literals;
    const size_t next_tag = in[kOffsetBytes];
    const size_t offset = Load16Bits(in);
    if (offset < match_bytes) [[unlikely]]
      return false;
    uint8_t* out = place.out + num_literals;
    const uintptr_t source = reinterpret_cast<uintptr_t>(out) - offset;
    if (source < reinterpret_cast<uintptr_t>(bounds.out_begin)) [[unlikely]]
      return false;
    CopyWord(literals, place.out);
    CopyWord(literals + kWordBytes, place.out + kWordBytes);
    CopyWord(reinterpret_cast<const uint8_t*>(source), out);
    place = {.in = in + kOffsetBytes + 1, .out = out + match_bytes, .tag = next_tag};
    return true;
  }
};

using Lz4Lanes = BlockLanes<Lz4>;

// Continues a block whose matches mostly begin within a word before their place, such as
// sorted numbers. A load that overlaps stores still under way waits for them, about 20
// cycles. So the last word stays in a register, and such matches are shuffled out of it:
// 1.8 to 3.2 times the speed.
StepOutcome RunNear(BlockPlace* begin, const BlockBounds& bounds) {
  BlockPlace place = *begin;
  const auto step = [&](Word* last) {
    const size_t num_literals = place.tag >> 4;
    const size_t match_bytes = (place.tag & 15) + kMinMatch;
    const uint8_t* in = place.in + num_literals;
    const size_t next_tag = in[kOffsetBytes];
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
    place = {.in = in + kOffsetBytes + 1, .out = out + match_bytes, .tag = next_tag};
    return true;
  };
  StepOutcome outcome = StepOutcome::kDone;
  while (outcome == StepOutcome::kDone) {
    int64_t steps = Lz4Lanes::StepsWithin(place, bounds);
    if (steps == 0) break;
    Word last = LoadWord(place.out - kWordBytes);
    while (steps > 0 && step(&last)) --steps;
    if (steps == 0) continue;
    BlockPlace next = place;
    outcome = StepSequence(&next, bounds);
    place = next;
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
  Lz4Lanes::RunPair(&pair, FirstSteps(first));
  // Near matches wait for stores, which a second block does not shorten.
  if (IsNear(pair.places[0], pair.bounds[0]) || IsNear(pair.places[1], pair.bounds[1])) {
    return {pair.good[0] && Continue(pair.places[0], pair.bounds[0]),
            pair.good[1] && Continue(pair.places[1], pair.bounds[1])};
  }
  constexpr int64_t kTrialSteps = 256;
  constexpr int64_t kMaxUncommon = kTrialSteps / 16;
  if (Lz4Lanes::RunPair(&pair, kTrialSteps) > kMaxUncommon) {
    BlockLanes<Lz4LongLiterals>::RunPair(&pair);
  } else {
    Lz4Lanes::RunPair(&pair);
  }
  return Lz4Lanes::FinishPair(&pair);
}

}  // namespace torchparquet::kernels
