#include "kernels/codecs/zstd_literals.h"

#include <algorithm>
#include <bit>
#include <cstring>

namespace torchparquet::kernels {
namespace {

// Each round takes up to 55 bits of each stream, which is 7 bytes. Of codes of up to 9
// bits, these are six literals, or else five.
constexpr int64_t kRoundBytes = 7;
constexpr int64_t kRoundLiterals = 5;
constexpr int64_t kShortLiterals = 6;
constexpr int kShortBits = 9;

int64_t QuarterOf(const ZstdStreams& streams) {
  return static_cast<int64_t>((streams.num_literals + 3) / 4);
}
int64_t LiteralsOf(const ZstdStreams& streams, size_t stream) {
  const int64_t quarter = QuarterOf(streams);
  return stream < 3 ? quarter : static_cast<int64_t>(streams.num_literals) - 3 * quarter;
}

// Loads the next word of a stream. GCC would store the place and load it again at once,
// which every literal after it would wait for.
template <bool kBmi2>
[[gnu::always_inline]] inline void LoadNext(uint64_t* word, const uint8_t** in) {
#if defined(TORCHPARQUET_BMI2)
  if constexpr (kBmi2) {
    uint64_t taken;
    const uint8_t* place;
    asm("tzcnt %[word], %[taken]\n\t"
        "mov %[taken], %[word]\n\t"
        "shr $3, %[word]\n\t"
        "mov %[in], %[place]\n\t"
        "sub %[word], %[place]\n\t"
        "mov %[place], %[in]\n\t"
        "mov (%[place]), %[word]\n\t"
        "and $7, %k[taken]\n\t"
        "or $1, %[word]\n\t"
        "shlx %[taken], %[word], %[word]"
        : [word] "+r"(*word), [taken] "=&r"(taken), [place] "=&r"(place), [in] "+m"(*in)
        :
        : "cc");
    return;
  }
#endif
  const int taken = std::countr_zero(*word);
  *in -= taken >> 3;
  *word = (Load64Bits(*in) | 1) << (taken & 7);
}

// The four streams of a block, or the eight of two blocks, under way. The word of a
// stream has its next bits at the top. Below them is a one, and below it as many zeros as
// bits were taken since the word was loaded.
template <size_t kNumStreams>
struct StreamGroup {
  static constexpr size_t kNumLanes = kNumStreams / kNumZstdStreams;

  std::array<uint64_t, kNumStreams> words;
  std::array<const uint8_t*, kNumStreams> in;  // where the words were loaded
  std::array<const uint8_t*, kNumStreams> begin;
  const ZstdHuffmanTable* tables;       // of the first block
  std::array<uint8_t*, kNumLanes> out;  // of the first stream of each block
  int64_t left;                         // of the shortest stream

  StreamGroup(const std::array<ZstdStreams*, kNumLanes>& lanes, size_t first_lane,
              ZstdLiteralMemory* memory)
      : tables(&memory->tables[first_lane]), left(ZstdLiteralMemory::kMaxLiterals) {
    for (size_t i = 0; i < kNumLanes; ++i) {
      out[i] = memory->LiteralsOf(first_lane + i) + lanes[i]->num_done;
      left = std::min(left, LiteralsOf(*lanes[i], 3) - lanes[i]->num_done);
    }
    for (size_t i = 0; i < kNumStreams; ++i) {
      const BackwardBits& bits = lanes[i / kNumZstdStreams]->bits[i % kNumZstdStreams];
      begin[i] = bits.begin;
      in[i] = bits.begin + (bits.num_left >> 3) - 7;
      words[i] = (Load64Bits(in[i]) | 1) << (8 - (bits.num_left & 7));
    }
  }

  // The rounds that are certain to stay within the streams, but for 7 bytes before one,
  // and within the literals.
  template <int64_t kLiterals>
  int64_t RoundsWithin() const {
    int64_t bytes = in[0] - begin[0];
    for (size_t i = 1; i < kNumStreams; ++i) bytes = std::min(bytes, in[i] - begin[i]);
    if (bytes < 0) return 0;
    return std::min(bytes / kRoundBytes + 1, left / kLiterals);
  }

  // Makes all rounds that are certain. What is under way is in copies that no other
  // function sees, so that it stays in registers. Processors look at about a hundred
  // instructions that wait: of one literal of each stream, not of one stream after the
  // other.
  template <bool kBmi2, int64_t kLiterals>
  [[gnu::always_inline]] void Run() {
    for (int64_t rounds; (rounds = RoundsWithin<kLiterals>()) > 0;) {
      auto word = words;
      auto place = in;
      auto to = out;
      const ZstdHuffmanTable* const first = tables;
      // A shift by a register can have its result in another one.
      // NOLINTNEXTLINE(misc-const-correctness)
      uint64_t below_code = 64 - ZstdHuffmanTable::kBits;
      if constexpr (kBmi2) asm("" : "+r"(below_code));
      left -= kLiterals * rounds;
      for (; rounds > 0; --rounds) {
#pragma GCC unroll 8
        for (size_t i = 0; i < kNumStreams; ++i) LoadNext<kBmi2>(&word[i], &place[i]);
#pragma GCC unroll 6
        for (size_t j = 0; j < kLiterals; ++j) {
#pragma GCC unroll 8
          for (size_t i = 0; i < kNumStreams; ++i) {
            const uint64_t code = word[i] >> below_code;
            const uint32_t found = first[i / kNumZstdStreams].codes[code];
            word[i] <<= found & 63;
            uint8_t* const literals =
                to[i / kNumZstdStreams] +
                i % kNumZstdStreams * ZstdLiteralMemory::kStreamBytes;
            literals[j] = static_cast<uint8_t>(found >> 8);
          }
        }
        for (uint8_t*& literals : to) literals += kLiterals;
      }
      words = word;
      in = place;
      out = to;
    }
  }

  BackwardBits BitsLeft(size_t stream) const {
    return {begin[stream],
            8 * (in[stream] + 8 - begin[stream]) - std::countr_zero(words[stream])};
  }
};

#if defined(TORCHPARQUET_BMI2)
template <int64_t kLiterals, size_t kNumStreams>
TORCHPARQUET_BMI2 void RunBmi2(StreamGroup<kNumStreams>* group) {
  group->template Run<true, kLiterals>();
}
#endif

template <int64_t kLiterals, size_t kNumStreams>
void Run(StreamGroup<kNumStreams>* group) {
#if defined(TORCHPARQUET_BMI2)
  if (ChosenInstructions() == Instructions::kAvx2) return RunBmi2<kLiterals>(group);
#endif
  group->template Run<false, kLiterals>();
}

// The literals of a stream one by one. Returns whether they are all that it has.
bool Finish(const ZstdHuffmanTable& table, BackwardBits bits, std::span<uint8_t> out) {
  for (uint8_t& literal : out) {
    if (bits.num_left <= 0) return false;
    const uint64_t code = bits.Peek(ZstdHuffmanTable::kBits);
    literal = static_cast<uint8_t>(table.codes[code] >> 8);
    bits.num_left -= table.codes[code] & 63;
  }
  return bits.num_left == 0;
}

template <size_t kNumLanes>
void RunGroup(const std::array<ZstdStreams*, kNumLanes>& lanes, size_t first_lane,
              ZstdLiteralMemory* memory) {
  constexpr size_t kNumStreams = kNumLanes * kNumZstdStreams;
  StreamGroup<kNumStreams> group(lanes, first_lane, memory);
  const int64_t left = group.left;
  int max_bits = 0;
  for (size_t i = 0; i < kNumLanes; ++i) {
    max_bits = std::max(max_bits, group.tables[i].max_bits);
  }
  if (max_bits <= kShortBits) {
    Run<kShortLiterals>(&group);
  } else {
    Run<kRoundLiterals>(&group);
  }
  for (size_t i = 0; i < kNumStreams; ++i) {
    lanes[i / kNumZstdStreams]->bits[i % kNumZstdStreams] = group.BitsLeft(i);
  }
  for (ZstdStreams* lane : lanes) lane->num_done += left - group.left;
}

}  // namespace

void DecodeLiterals(const std::array<ZstdStreams*, 2>& lanes, ZstdLiteralMemory* memory) {
  for (const ZstdStreams* streams : lanes) {
    if (streams->num_streams != kNumZstdStreams) return;
  }
  RunGroup<2>(lanes, 0, memory);
}

bool FinishLiterals(size_t lane, ZstdStreams* streams, ZstdLiteralMemory* memory) {
  const ZstdHuffmanTable& table = memory->tables[lane];
  uint8_t* const literals = memory->LiteralsOf(lane);
  if (streams->num_streams == 0) return true;
  if (streams->num_streams == 1) {
    return Finish(table, streams->bits[0], {literals, streams->num_literals});
  }
  RunGroup<1>({streams}, lane, memory);
  for (size_t i = 0; i < kNumZstdStreams; ++i) {
    uint8_t* out = memory->streams[kNumZstdStreams * lane + i].data();
    const int64_t count = LiteralsOf(*streams, i);
    if (!Finish(table, streams->bits[i], {out + streams->num_done, out + count})) {
      return false;
    }
    // All one after the other.
    std::memmove(literals + static_cast<int64_t>(i) * QuarterOf(*streams), out,
                 static_cast<size_t>(count));
  }
  return true;
}

}  // namespace torchparquet::kernels
