#include "kernels/shuffle/keyed_order.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>

#include "base/errors.h"

namespace torchparquet::kernels {
namespace {

constexpr int64_t kMostRows = int64_t{1} << 62;
// As many pairs go through the network at once, since each multiplication of one pair
// waits for the one before.
constexpr size_t kLanes = 8;

// A random number below `bound` for each pair of a word and a key: two steps of
// SplitMix64's finalizer (Steele, Lea and Flood, 2014), whose upper bits alone count.
uint64_t RandomBelow(uint64_t bound, uint64_t word, uint64_t key) {
  word = (word ^ key) * 0xBF58476D1CE4E5B9;
  word = (word ^ (word >> 32)) * 0x94D049BB133111EB;
  __extension__ using Wide = unsigned __int128;
  return static_cast<uint64_t>(Wide{word} * bound >> 64);
}

uint64_t SumBelow(uint64_t bound, uint64_t a, uint64_t b) {
  const uint64_t sum = a + b;
  return sum < bound ? sum : sum - bound;
}

// Numbers as pairs of a high and a low digit, which each round changes in turn.
template <size_t kSize>
struct Pairs {
  std::array<uint64_t, kSize> high;
  std::array<uint64_t, kSize> low;
};

struct Network {
  std::span<const uint64_t> keys;
  uint64_t num_high;
  uint64_t num_low;

  template <size_t kSize>
  void Step(Pairs<kSize>& pairs) const {
    for (size_t round = 0; round + 1 < keys.size(); round += 2) {
      for (size_t i = 0; i < kSize; ++i) {
        pairs.high[i] = SumBelow(num_high, pairs.high[i],
                                 RandomBelow(num_high, pairs.low[i], keys[round]));
      }
      for (size_t i = 0; i < kSize; ++i) {
        pairs.low[i] = SumBelow(num_low, pairs.low[i],
                                RandomBelow(num_low, pairs.high[i], keys[round + 1]));
      }
    }
  }
};

}  // namespace

void KeyedRows(std::span<const uint64_t> keys, int64_t n, int64_t begin,
               std::span<int64_t> out) {
  if (n > kMostRows || begin < 0 || begin > n || std::ssize(out) > n - begin) {
    throw InvalidArgument("positions are not in an order of rows");
  }
  if (out.empty()) return;
  const auto num_rows = static_cast<uint64_t>(n);
  // The product is at least n, whatever the root is rounded to, and below n + num_high.
  const auto num_high = static_cast<uint64_t>(std::sqrt(static_cast<double>(n))) + 1;
  const Network network{keys, num_high, (num_rows + num_high - 1) / num_high};
  uint64_t high = static_cast<uint64_t>(begin) / network.num_low;
  uint64_t low = static_cast<uint64_t>(begin) % network.num_low;
  for (size_t first = 0; first < out.size(); first += kLanes) {
    Pairs<kLanes> pairs;
    for (size_t i = 0; i < kLanes; ++i) {
      pairs.high[i] = high;
      pairs.low[i] = low;
      if (++low == network.num_low) {
        low = 0;
        ++high;
      }
    }
    network.Step(pairs);
    for (size_t i = 0; i < std::min(kLanes, out.size() - first); ++i) {
      Pairs<1> pair{{pairs.high[i]}, {pairs.low[i]}};
      const auto row = [&] { return pair.high[0] * network.num_low + pair.low[0]; };
      while (row() >= num_rows) network.Step(pair);
      out[first + i] = static_cast<int64_t>(row());
    }
  }
}

}  // namespace torchparquet::kernels
