#pragma once

#include <algorithm>
#include <array>
#include <cstdint>

#if defined(__x86_64__)
#include <emmintrin.h>
#endif

namespace torchparquet::kernels {

// Cached stores, or streaming (non-temporal) stores. A streaming store writes memory
// without reading it into the cache first, and so evicts nothing. Use it for values that
// no one reads before they would have left the cache.
enum class Stores { kCached, kStreaming };

constexpr int64_t kLineBytes = 64;

// Makes earlier streaming stores visible to other threads. Call it before handing the
// memory to another thread, and not more often: it waits for memory.
inline void EndStreamingStores() {
#if defined(__x86_64__)
  _mm_sfence();
#endif
}

// As memcpy, by streaming stores. Neither pointer need be aligned.
void StreamCopy(const uint8_t* in, int64_t num_bytes, uint8_t* out);

// Writes `num_values` values by streaming stores for a reader that can only store
// normally. Calls `read(block, count)` with a block in the L1 cache and copies each block
// to `out`. Values longer than a block are read straight to `out`.
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
