#include "kernels/partition.h"

#include <algorithm>
#include <cstring>

#include "kernels/past_cache.h"

namespace torchparquet::kernels {
namespace {

template <typename T>
void GatherPastCache(const T* bucket, std::span<const uint16_t> order, const T* next,
                     uint8_t* out) {
  constexpr size_t kLineItems = kLineBytes / sizeof(T);
  const auto gather = [&](size_t begin, size_t end, uint8_t* items) {
    for (size_t i = begin; i < end; ++i) {
      std::memcpy(items, bucket + order[i], sizeof(T));
      items += sizeof(T);
    }
  };
  const auto misaligned = reinterpret_cast<uintptr_t>(out) % kLineBytes;
  size_t done = misaligned == 0 ? 0 : (kLineBytes - misaligned) / sizeof(T);
  done = std::min(done, order.size());
  gather(0, done, out);
  for (; done + kLineItems <= order.size(); done += kLineItems) {
    __builtin_prefetch(next + done);
    alignas(kLineBytes) uint8_t line[kLineBytes];
    gather(done, done + kLineItems, line);
    StoreLinePastCache(line, out + done * sizeof(T));
  }
  gather(done, order.size(), out + done * sizeof(T));
  EndStoresPastCache();
}

template <typename T>
void GatherRows(const T* bucket, std::span<const uint16_t> order, const T* next,
                int64_t stride, uint8_t* out) {
  constexpr size_t kLineItems = kLineBytes / sizeof(T);
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
  const bool is_aligned = reinterpret_cast<uintptr_t>(out) % sizeof(T) == 0;
  if (stride == sizeof(T) && is_aligned) {
    GatherPastCache(bucket, order, next, out);
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
