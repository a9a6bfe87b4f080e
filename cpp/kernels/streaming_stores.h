#pragma once

#include <algorithm>
#include <array>
#include <cstdint>

#if defined(__x86_64__)
#include <emmintrin.h>
#endif

namespace torchparquet::kernels {

// Where stores go. What nobody reads before it would have left the cache is stored past
// it: then memory is not read first to be overwritten, and what is in use stays cached.
enum class Stores { kCached, kStreaming };

constexpr int64_t kLineBytes = 64;

// To be called before what was stored past the cache is handed to another thread; not
// oftener, since it waits for memory.
inline void EndStreamingStores() {
#if defined(__x86_64__)
  _mm_sfence();
#endif
}

// As memcpy. Neither need be aligned.
void StreamCopy(const uint8_t* in, int64_t num_bytes, uint8_t* out);

// Calls `read` with a block, which stays in the L1 cache, and the number of values that
// it is to hold, until all `num_values` went from there past the cache to `out`: for what
// stores values of `value_bytes` bytes in a way of its own. Values that no block holds
// are read straight to `out`.
template <typename ReadValues>
void StreamByBlocks(int64_t value_bytes, int64_t num_values, uint8_t* out,
                    ReadValues read) {
  alignas(kLineBytes) std::array<uint8_t, 8192> block;
  const int64_t block_values = static_cast<int64_t>(block.size()) / value_bytes;
  if (block_values == 0) return read(out, num_values);
  while (num_values > 0) {
    const int64_t count = std::min(num_values, block_values);
    read(block.data(), count);
    StreamCopy(block.data(), count * value_bytes, out);
    out += count * value_bytes;
    num_values -= count;
  }
}

}  // namespace torchparquet::kernels
