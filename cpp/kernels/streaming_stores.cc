#include "kernels/streaming_stores.h"

#include <algorithm>
#include <cstring>

namespace torchparquet::kernels {

void StreamCopy(const uint8_t* in, int64_t num_bytes, uint8_t* out) {
  const auto copy = [&](int64_t count) {
    if (count == 0) return;
    std::memcpy(out, in, static_cast<size_t>(count));
    in += count;
    out += count;
    num_bytes -= count;
  };
  const auto misaligned =
      static_cast<int64_t>(reinterpret_cast<uintptr_t>(out) % kLineBytes);
  copy(std::min(num_bytes, misaligned == 0 ? 0 : kLineBytes - misaligned));
#if defined(__x86_64__)
  for (; num_bytes >= kLineBytes; num_bytes -= kLineBytes) {
    for (int64_t i = 0; i < kLineBytes; i += 16) {
      _mm_stream_si128(reinterpret_cast<__m128i*>(out + i),
                       _mm_loadu_si128(reinterpret_cast<const __m128i*>(in + i)));
    }
    in += kLineBytes;
    out += kLineBytes;
  }
#endif
  copy(num_bytes);
}

}  // namespace torchparquet::kernels
