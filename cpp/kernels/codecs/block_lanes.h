#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <span>

namespace torchparquet::kernels {

// A compressed block, and the memory for exactly its content.
struct CompressedBlock {
  std::span<const uint8_t> bytes;
  std::span<uint8_t> out;
};

// The bounds of a block that is being decompressed.
struct BlockBounds {
  const uint8_t* in_end;
  uint8_t* out_begin;
  uint8_t* out_end;
};

// A place in a block: everything before it is decompressed. Loops keep it in registers,
// and functions return it in two.
struct BlockPlace {
  const uint8_t* in = nullptr;  // after the tag, the first byte of the next element
  uint8_t* out = nullptr;
};

enum class StepOutcome {
  kDone,     // the element is done, and the place is after it
  kDamaged,  // no valid block has these bytes
  kNoRoom,   // too near an end; the place is unchanged
};

// What StepAny returns for damaged bytes.
inline constexpr BlockPlace kDamagedPlace = {};

// No step reads or writes as many bytes beyond its place, so that it need not check.
inline constexpr ptrdiff_t kStepRoom = 96;

// Two blocks that are decompressed at once.
struct BlockPair {
  std::array<BlockBounds, 2> bounds;
  std::array<BlockPlace, 2> places;
  std::array<bool, 2> good = {true, true};
};

// The loops over the elements of LZ77 blocks. Each block is a lane: two of them run side
// by side. A Format has
//   kMaxStep  bytes by which Step moves on at most; a power of two, to divide by quickly
//   bool Step(place, tag, bounds)  an element of the common kind, or false. Inlined. Also
//   moves on `tag`, which loops keep in a register: all that follows depends on it
//   BlockPlace StepAny(place, bounds)  any element; the place after it, the same place if
//   that is too near an end, or kDamagedPlace
//   bool Finish(in, out, bounds)  all elements from `in` on, byte by byte; false if
//   damaged
//
// One element depends on the one before through its length: about eight cycles, in which
// a core could do three times as much. A pair of blocks fills them: it takes 0.6 to 0.8
// of the time of one block after the other.
template <typename Format>
class BlockLanes {
 public:
  static constexpr int64_t kAllSteps = std::numeric_limits<int64_t>::max();

  // Returns false if the block is damaged, or its content not as long as its memory.
  static bool Decompress(const BlockBounds& bounds, const uint8_t* in) {
    if (!HasRoom(bounds, in)) return Format::Finish(in, bounds.out_begin, bounds);
    BlockPlace place = BeginBlock(bounds, in);
    return RunOne(&place, bounds) != StepOutcome::kDamaged &&
           Format::Finish(place.in - 1, place.out, bounds);
  }

  static bool HasRoom(const BlockBounds& bounds, const uint8_t* in) {
    return bounds.in_end - in > kStepRoom &&
           bounds.out_end - bounds.out_begin > kStepRoom;
  }

  static BlockPlace BeginBlock(const BlockBounds& bounds, const uint8_t* in) {
    return {.in = in + 1, .out = bounds.out_begin};
  }

  // The number of steps that certainly have room.
  static int64_t StepsWithin(const BlockPlace& place, const BlockBounds& bounds) {
    const ptrdiff_t in_room = bounds.in_end - place.in - kStepRoom;
    const ptrdiff_t out_room = bounds.out_end - place.out - kStepRoom;
    const ptrdiff_t room = std::min(in_room, out_room);
    return room < 0 ? 0 : 1 + room / Format::kMaxStep;
  }

  // Makes up to `max_steps` steps while there is room, and stops after one that is not
  // kDone.
  static StepOutcome RunOne(BlockPlace* begin, const BlockBounds& bounds,
                            int64_t max_steps = kAllSteps) {
    BlockPlace place = *begin;
    StepOutcome outcome = StepOutcome::kDone;
    while (outcome == StepOutcome::kDone) {
      const int64_t most = std::min(StepsWithin(place, bounds), max_steps);
      if (most == 0) break;
      int64_t steps = most;
      size_t tag = place.in[-1];
      for (; steps > 0; --steps) {
        if (!Format::Step(place, tag, bounds)) [[unlikely]] {
          outcome = StepAny(place, bounds);
          break;
        }
      }
      max_steps -= most - steps + (steps > 0 ? 1 : 0);
    }
    *begin = place;
    return outcome;
  }

  // Makes up to `max_steps` steps in both blocks, while both have room. Returns how many
  // of these were not of the common kind.
  static int64_t RunPair(BlockPair* pair, int64_t max_steps = kAllSteps) {
    const BlockBounds bounds = pair->bounds[0];
    const BlockBounds other_bounds = pair->bounds[1];
    BlockPlace place = pair->places[0];
    BlockPlace other = pair->places[1];
    StepOutcome outcome = StepOutcome::kDone;
    StepOutcome other_outcome = StepOutcome::kDone;
    int64_t num_uncommon = 0;
    while (outcome == StepOutcome::kDone && other_outcome == StepOutcome::kDone) {
      const int64_t most = std::min(
          {StepsWithin(place, bounds), StepsWithin(other, other_bounds), max_steps});
      if (most == 0) break;
      int64_t steps = most;
      size_t tag = place.in[-1];
      size_t other_tag = other.in[-1];
      for (; steps > 0; --steps) {
        if (!Format::Step(place, tag, bounds)) [[unlikely]] {
          outcome = StepAny(place, bounds);
          break;
        }
        if (!Format::Step(other, other_tag, other_bounds)) [[unlikely]] {
          other_outcome = StepAny(other, other_bounds);
          break;
        }
      }
      const int64_t uncommon = steps > 0 ? 1 : 0;
      num_uncommon += uncommon;
      max_steps -= most - steps + uncommon;
    }
    pair->places = {place, other};
    if (outcome == StepOutcome::kDamaged) pair->good[0] = false;
    if (other_outcome == StepOutcome::kDamaged) pair->good[1] = false;
    return num_uncommon;
  }

  // The rest of both blocks, one after the other. Returns which of them are good.
  static std::array<bool, 2> FinishPair(BlockPair* pair) {
    for (size_t i = 0; i < 2; ++i) {
      BlockPlace& place = pair->places[i];
      pair->good[i] = pair->good[i] &&
                      RunOne(&place, pair->bounds[i]) != StepOutcome::kDamaged &&
                      Format::Finish(place.in - 1, place.out, pair->bounds[i]);
    }
    return pair->good;
  }

  // Makes a step of any kind.
  [[gnu::always_inline]] static StepOutcome StepAny(BlockPlace& place,
                                                    const BlockBounds& bounds) {
    const BlockPlace next = Format::StepAny(place, bounds);
    if (next.in == nullptr) return StepOutcome::kDamaged;
    if (next.in == place.in) return StepOutcome::kNoRoom;
    place = next;
    return StepOutcome::kDone;
  }
};

}  // namespace torchparquet::kernels
