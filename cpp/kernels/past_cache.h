#pragma once

#include <cstdint>
#include <cstring>

#if defined(__x86_64__)
#include <emmintrin.h>
#endif

namespace torchparquet::kernels {

// Where stores go. What nobody reads before it would have left the cache is stored past
// it: then memory is not read first to be overwritten, and what is in use stays cached.
enum class Stores { kCached, kPastCache };

constexpr int64_t kLineBytes = 64;

// Both are aligned to lines.
inline void StoreLinePastCache(const uint8_t* line, uint8_t* out) {
#if defined(__x86_64__)
  for (int64_t i = 0; i < kLineBytes; i += 16) {
    _mm_stream_si128(reinterpret_cast<__m128i*>(out + i),
                     _mm_load_si128(reinterpret_cast<const __m128i*>(line + i)));
  }
#else
  std::memcpy(out, line, kLineBytes);
#endif
}

// To be called before what was stored past the cache is handed to another thread; not
// oftener, since it waits for memory.
inline void EndStoresPastCache() {
#if defined(__x86_64__)
  _mm_sfence();
#endif
}

// As memcpy. Neither need be aligned.
void CopyPastCache(const uint8_t* in, int64_t num_bytes, uint8_t* out);

}  // namespace torchparquet::kernels
