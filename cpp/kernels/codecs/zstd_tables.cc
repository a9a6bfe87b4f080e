#include "kernels/codecs/zstd_tables.h"

#include <algorithm>
#include <bit>
#include <cstring>

#include "kernels/codecs/zstd_bits.h"
#include "kernels/count_bytes.h"

namespace torchparquet::kernels {
namespace {

// How often each symbol occurs among the states of a table; -1 for a symbol that has one
// state, which all others follow.
struct Distribution {
  int log = 0;
  size_t num_symbols = 0;
  std::array<int16_t, 64> counts{};
};

// The numbers that a symbol stands for: a base, and bits that are added to it.
struct CodeValue {
  uint8_t extra_bits;
  uint32_t base;
};

constexpr size_t kNumLiteralLengths = 36;
constexpr size_t kNumMatchLengths = 53;
// Longer offsets than these would lead out of any page.
constexpr size_t kNumOffsets = 29;

template <size_t kNumCodes, size_t kNumTail>
constexpr std::array<CodeValue, kNumCodes> ValuesOf(
    uint32_t first, const std::array<uint8_t, kNumTail>& tail_bits) {
  std::array<CodeValue, kNumCodes> values{};
  uint32_t base = first;
  for (size_t i = 0; i < kNumCodes; ++i) {
    const size_t num_plain = kNumCodes - kNumTail;
    values[i] = {i < num_plain ? uint8_t{0} : tail_bits[i - num_plain], base};
    base += 1U << values[i].extra_bits;
  }
  return values;
}
// The bits of the last codes; those before stand for one number each.
constexpr auto kLiteralLengths = ValuesOf<kNumLiteralLengths, 20>(
    0, {1, 1, 1, 1, 2, 2, 3, 3, 4, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16});
constexpr auto kMatchLengths = ValuesOf<kNumMatchLengths, 21>(
    3, {1, 1, 1, 1, 2, 2, 3, 3, 4, 4, 5, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16});
constexpr auto kOffsets = [] {
  std::array<CodeValue, kNumOffsets> values{};
  for (size_t i = 0; i < kNumOffsets; ++i) {
    values[i] = {static_cast<uint8_t>(i), uint32_t{1} << i};
  }
  return values;
}();
static_assert(kLiteralLengths.back().base == 1 << 16);
static_assert(kMatchLengths.back().base == (1 << 16) + 3);

struct CodeKind {
  std::span<const CodeValue> values;
  int max_log;
};
constexpr std::array<CodeKind, kNumZstdCodes> kKinds = {
    {{kLiteralLengths, 9}, {kOffsets, 8}, {kMatchLengths, 9}}};

constexpr Distribution kDefaultLiteralLengths = {
    6, 36, {4, 3, 2, 2, 2, 2, 2, 2, 2, 2, 2, 2, 2, 1, 1,  1,  2,  2,
            2, 2, 2, 2, 2, 2, 2, 3, 2, 1, 1, 1, 1, 1, -1, -1, -1, -1}};
constexpr Distribution kDefaultOffsets = {
    5, 29, {1, 1, 1, 1, 1, 1, 2, 2, 2, 1,  1,  1,  1,  1, 1,
            1, 1, 1, 1, 1, 1, 1, 1, 1, -1, -1, -1, -1, -1}};
constexpr Distribution kDefaultMatchLengths = {
    6, 53, {1, 4, 3, 2, 2, 2, 2, 2, 2, 1, 1,  1,  1,  1,  1,  1,  1, 1,
            1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1,  1,  1,  1,  1,  1,  1, 1,
            1, 1, 1, 1, 1, 1, 1, 1, 1, 1, -1, -1, -1, -1, -1, -1, -1}};

// Bits that are read from the first one to the last.
class ForwardBits {
 public:
  explicit ForwardBits(std::span<const uint8_t> bytes) : bytes_(bytes) {}

  // The next `count` bits, up to 16. Those after the last byte are 0.
  uint32_t Peek(int count) const {
    uint32_t bits = 0;
    for (size_t i = 0; i < 3; ++i) {
      const size_t at = num_taken_ / 8 + i;
      if (at < bytes_.size()) bits |= uint32_t{bytes_[at]} << (8 * i);
    }
    return bits >> (num_taken_ % 8) & ((1U << count) - 1);
  }
  void Skip(int count) { num_taken_ += static_cast<size_t>(count); }
  size_t bytes_taken() const { return (num_taken_ + 7) / 8; }

 private:
  std::span<const uint8_t> bytes_;
  size_t num_taken_ = 0;
};

bool ReadDistribution(std::span<const uint8_t>* in, size_t max_symbols, int max_log,
                      Distribution* found) {
  ForwardBits bits(*in);
  found->log = static_cast<int>(bits.Peek(4)) + 5;
  bits.Skip(4);
  if (found->log > max_log) return false;
  int32_t left = 1 << found->log;
  size_t& symbol = found->num_symbols;
  symbol = 0;
  while (left > 0) {
    if (symbol == max_symbols) return false;
    // A number up to left + 1, of which the lower ones take a bit less.
    const auto width = static_cast<int>(std::bit_width(static_cast<uint32_t>(left + 1)));
    const auto num_short = static_cast<uint32_t>((1 << width) - 1 - (left + 1));
    const uint32_t half = 1U << (width - 1);
    uint32_t number = bits.Peek(width - 1);
    if (number < num_short) {
      bits.Skip(width - 1);
    } else {
      number = bits.Peek(width);
      if (number >= half) number -= num_short;
      bits.Skip(width);
    }
    const auto count = static_cast<int16_t>(static_cast<int32_t>(number) - 1);
    left -= count < 0 ? 1 : count;
    found->counts[symbol++] = count;
    if (count != 0) continue;
    for (uint32_t repeat = 3; repeat == 3;) {
      repeat = bits.Peek(2);
      bits.Skip(2);
      for (uint32_t i = 0; i < repeat; ++i) {
        if (symbol == max_symbols) return false;
        found->counts[symbol++] = 0;
      }
    }
  }
  if (left < 0 || bits.bytes_taken() > in->size()) return false;
  *in = in->subspan(bits.bytes_taken());
  return true;
}

// The symbols of the states.
void Spread(const Distribution& distribution, uint8_t* symbols) {
  const size_t size = size_t{1} << distribution.log;
  const size_t step = (size >> 1) + (size >> 3) + 3;
  size_t end = size;
  for (size_t symbol = 0; symbol < distribution.num_symbols; ++symbol) {
    if (distribution.counts[symbol] < 0) symbols[--end] = static_cast<uint8_t>(symbol);
  }
  size_t at = 0;
  for (size_t symbol = 0; symbol < distribution.num_symbols; ++symbol) {
    for (int i = 0; i < distribution.counts[symbol]; ++i) {
      symbols[at] = static_cast<uint8_t>(symbol);
      do at = (at + step) & (size - 1);
      while (at >= end);
    }
  }
}

// How the states of each symbol divide all states among themselves.
class Successors {
 public:
  explicit Successors(const Distribution& distribution) : log_(distribution.log) {
    for (size_t i = 0; i < distribution.num_symbols; ++i) {
      const int16_t count = distribution.counts[i];
      next_[i] = count < 0 ? uint16_t{1} : static_cast<uint16_t>(count);
    }
  }
  // Of the next state of that symbol.
  ZstdCell Take(uint8_t symbol) {
    const uint32_t share = next_[symbol]++;
    const int bits = log_ + 1 - static_cast<int>(std::bit_width(share));
    ZstdCell cell;
    cell.next = static_cast<uint16_t>((share << bits) - (1U << log_));
    cell.next_bits = static_cast<uint8_t>(bits);
    return cell;
  }

 private:
  int log_;
  std::array<uint16_t, 64> next_;
};

void Build(ZstdCode code, const Distribution& distribution, ZstdStateTable* table) {
  std::array<uint8_t, size_t{1} << ZstdStateTable::kMaxLog> symbols;
  Spread(distribution, symbols.data());
  Successors successors(distribution);
  const std::span<const CodeValue> values = kKinds[code].values;
  table->log = distribution.log;
  const size_t size = size_t{1} << distribution.log;
  size_t num_long = 0;
  for (size_t i = 0; i < size; ++i) {
    const uint8_t symbol = symbols[i];
    ZstdCell cell = successors.Take(symbol);
    num_long += values[symbol].extra_bits != 0 ? 1 : 0;
    cell.extra_bits = values[symbol].extra_bits;
    cell.base = values[symbol].base;
    table->cells[i] = cell;
  }
  table->has_long = code != kOffset && num_long > size / 16;
}

// The weights of the literals but the last one.
struct Weights {
  static constexpr size_t kMax = 255;
  size_t count = 0;
  std::array<uint8_t, kMax + 1> of{};
};

// Two chains of states take turns, until one needs more bits than are left.
bool ReadPackedWeights(std::span<const uint8_t> in, Weights* weights) {
  constexpr int kMaxLog = 6;
  constexpr size_t kNumWeights = ZstdHuffmanTable::kBits + 1;
  Distribution distribution;
  if (!ReadDistribution(&in, kNumWeights, kMaxLog, &distribution)) return false;
  std::array<uint8_t, 1 << kMaxLog> symbols;
  std::array<ZstdCell, 1 << kMaxLog> cells;
  Spread(distribution, symbols.data());
  Successors successors(distribution);
  for (size_t i = 0; i < size_t{1} << distribution.log; ++i) {
    cells[i] = successors.Take(symbols[i]);
  }
  auto bits = BackwardBits::In(in);
  if (!bits || bits->num_left < int64_t{2} * distribution.log) return false;
  size_t state = bits->Take(distribution.log);
  size_t other = bits->Take(distribution.log);
  while (true) {
    if (weights->count + 2 > Weights::kMax) return false;
    weights->of[weights->count++] = symbols[state];
    const ZstdCell cell = cells[state];
    if (cell.next_bits > bits->num_left) {
      weights->of[weights->count++] = symbols[other];
      return true;
    }
    state = other;
    other = cell.next + bits->Take(cell.next_bits);
  }
}

bool ReadWeights(std::span<const uint8_t>* in, Weights* weights) {
  if (in->empty()) return false;
  const size_t header = in->front();
  *in = in->subspan(1);
  constexpr size_t kPlain = 128;
  const size_t num_bytes = header < kPlain ? header : (header - kPlain + 2) / 2;
  if (num_bytes > in->size()) return false;
  const auto bytes = in->first(num_bytes);
  *in = in->subspan(num_bytes);
  if (header < kPlain) return ReadPackedWeights(bytes, weights);
  for (const uint8_t byte : bytes) {
    weights->of[weights->count++] = byte >> 4;
    weights->of[weights->count++] = byte & 15;
  }
  weights->count = header - kPlain + 1;
  return true;
}

// Of a length that is a power of two.
inline void FillCodes(uint16_t code, size_t length, uint16_t* codes) {
  constexpr size_t kCodes = sizeof(uint64_t) / sizeof(uint16_t);
  if (length < kCodes) {
    for (size_t i = 0; i < length; ++i) codes[i] = code;
    return;
  }
  const uint64_t four = code * uint64_t{0x0001'0001'0001'0001};
  for (size_t i = 0; i < length; i += kCodes) std::memcpy(codes + i, &four, sizeof(four));
}

}  // namespace

bool ReadHuffmanTable(std::span<const uint8_t>* in, ZstdHuffmanTable* table) {
  constexpr int kBits = ZstdHuffmanTable::kBits;
  Weights weights;
  if (!ReadWeights(in, &weights)) return false;
  uint32_t total = 0;
  for (size_t i = 0; i < weights.count; ++i) {
    const uint8_t weight = weights.of[i];
    if (weight > kBits) return false;
    total += (1U << weight) >> 1;
  }
  // The last one makes it a power of two.
  const auto max_bits = static_cast<int>(std::bit_width(total));
  if (total == 0 || max_bits > kBits) return false;
  const uint32_t rest = (1U << max_bits) - total;
  if (!std::has_single_bit(rest)) return false;
  weights.of[weights.count] = static_cast<uint8_t>(std::bit_width(rest));

  // The literals by weight, and within one weight by number. They are found by weight:
  // to count them first, each would wait for the count before it.
  table->max_bits = max_bits;
  uint16_t* codes = table->codes.data();
  for (int weight = 1; weight <= max_bits; ++weight) {
    const auto num_bits = static_cast<uint32_t>(max_bits + 1 - weight);
    const size_t length = size_t{1} << (kBits - num_bits);
    for (size_t begin = 0; begin <= weights.count; begin += 64) {
      uint64_t found = EqualBytes(&weights.of[begin], static_cast<uint8_t>(weight));
      for (; found != 0; found &= found - 1) {
        const auto literal =
            static_cast<uint32_t>(begin) + static_cast<uint32_t>(std::countr_zero(found));
        FillCodes(static_cast<uint16_t>(num_bits | literal << 8), length, codes);
        codes += length;
      }
    }
    // An even number of the longest codes, and at least two.
    const auto num_longest = static_cast<size_t>(codes - table->codes.data()) / length;
    if (weight == 1 && (num_longest < 2 || num_longest % 2 != 0)) return false;
  }
  return true;
}

const ZstdStateTable& DefaultStateTable(ZstdCode code) {
  static const auto tables = [] {
    std::array<ZstdStateTable, kNumZstdCodes> built;
    Build(kLiteralLength, kDefaultLiteralLengths, &built[kLiteralLength]);
    Build(kOffset, kDefaultOffsets, &built[kOffset]);
    Build(kMatchLength, kDefaultMatchLengths, &built[kMatchLength]);
    return built;
  }();
  return tables[code];
}

bool ReadSingleState(ZstdCode code, std::span<const uint8_t>* in, ZstdStateTable* table) {
  const std::span<const CodeValue> values = kKinds[code].values;
  if (in->empty() || in->front() >= values.size()) return false;
  const CodeValue value = values[in->front()];
  *in = in->subspan(1);
  table->log = 0;
  table->has_long = code != kOffset && value.extra_bits != 0;
  table->cells[0] = {.extra_bits = value.extra_bits, .base = value.base};
  return true;
}

bool ReadStateTable(ZstdCode code, std::span<const uint8_t>* in, ZstdStateTable* table) {
  Distribution distribution;
  if (!ReadDistribution(in, kKinds[code].values.size(), kKinds[code].max_log,
                        &distribution)) {
    return false;
  }
  Build(code, distribution, table);
  return true;
}

}  // namespace torchparquet::kernels
