#include "kernels/partition.h"

#include <algorithm>
#include <cstring>

namespace torchparquet::kernels {
namespace {

// Inlined for the stride to be a constant where it is one.
template <typename T>
[[gnu::always_inline]] inline void GatherRows(const T* bucket,
                                              std::span<const uint16_t> order,
                                              const T* next, int64_t stride,
                                              uint8_t* out) {
  constexpr size_t kLineItems = 64 / sizeof(T);
  for (size_t done = 0; done < order.size(); done += kLineItems) {
    __builtin_prefetch(next + done);
    const size_t end = std::min(order.size(), done + kLineItems);
    for (size_t i = done; i < end; ++i) {
      std::memcpy(out, bucket + order[i], sizeof(T));
      out += stride;
    }
  }
}

}  // namespace

template <typename T>
void Partition(const T* items, std::span<const uint32_t> places, T* out) {
  for (const uint32_t place : places) out[place] = *items++;
}

template <typename T>
void GatherBucket(const T* bucket, std::span<const uint16_t> order, const T* next,
                  int64_t stride, uint8_t* out) {
  constexpr int64_t kItemBytes = sizeof(T);
  if (stride == kItemBytes) {
    GatherRows(bucket, order, next, kItemBytes, out);
  } else {
    GatherRows(bucket, order, next, stride, out);
  }
}

template void Partition(const uint8_t*, std::span<const uint32_t>, uint8_t*);
template void Partition(const uint16_t*, std::span<const uint32_t>, uint16_t*);
template void Partition(const uint32_t*, std::span<const uint32_t>, uint32_t*);
template void Partition(const uint64_t*, std::span<const uint32_t>, uint64_t*);
template void GatherBucket(const uint8_t*, std::span<const uint16_t>, const uint8_t*,
                           int64_t, uint8_t*);
template void GatherBucket(const uint16_t*, std::span<const uint16_t>, const uint16_t*,
                           int64_t, uint8_t*);
template void GatherBucket(const uint32_t*, std::span<const uint16_t>, const uint32_t*,
                           int64_t, uint8_t*);
template void GatherBucket(const uint64_t*, std::span<const uint16_t>, const uint64_t*,
                           int64_t, uint8_t*);

}  // namespace torchparquet::kernels
