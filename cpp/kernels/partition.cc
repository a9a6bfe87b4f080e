#include "kernels/partition.h"

#include <algorithm>
#include <cstring>

#include "kernels/past_cache.h"

namespace torchparquet::kernels {
namespace {

// `item` makes one of what is staged for it.
template <typename Staged, typename Item>
void GatherPastCache(const Staged* bucket, std::span<const uint16_t> order,
                     const Staged* next, Item item, uint8_t* out) {
  constexpr size_t kItemBytes = sizeof(item(Staged{}));
  constexpr size_t kLineItems = kLineBytes / kItemBytes;
  const auto gather = [&](size_t begin, size_t end, uint8_t* items) {
    for (size_t i = begin; i < end; ++i) {
      const auto value = item(bucket[order[i]]);
      std::memcpy(items, &value, kItemBytes);
      items += kItemBytes;
    }
  };
  const auto misaligned = reinterpret_cast<uintptr_t>(out) % kLineBytes;
  size_t done = misaligned == 0 ? 0 : (kLineBytes - misaligned) / kItemBytes;
  done = std::min(done, order.size());
  gather(0, done, out);
  for (; done + kLineItems <= order.size(); done += kLineItems) {
    __builtin_prefetch(next + done);
    alignas(kLineBytes) uint8_t line[kLineBytes];
    gather(done, done + kLineItems, line);
    StoreLinePastCache(line, out + done * kItemBytes);
  }
  gather(done, order.size(), out + done * kItemBytes);
  EndStoresPastCache();
}

template <typename Staged, typename Item>
void GatherRows(const Staged* bucket, std::span<const uint16_t> order, const Staged* next,
                Item item, int64_t stride, uint8_t* out) {
  constexpr size_t kItemBytes = sizeof(item(Staged{}));
  constexpr size_t kLineItems = kLineBytes / kItemBytes;
  for (size_t done = 0; done < order.size(); done += kLineItems) {
    __builtin_prefetch(next + done);
    const size_t end = std::min(order.size(), done + kLineItems);
    for (size_t i = done; i < end; ++i) {
      const auto value = item(bucket[order[i]]);
      std::memcpy(out, &value, kItemBytes);
      out += stride;
    }
  }
}

template <typename Staged, typename Item>
void Gather(const Staged* bucket, std::span<const uint16_t> order, const Staged* next,
            Item item, int64_t stride, uint8_t* out) {
  constexpr size_t kItemBytes = sizeof(item(Staged{}));
  const bool is_aligned = reinterpret_cast<uintptr_t>(out) % kItemBytes == 0;
  if (stride == kItemBytes && is_aligned) {
    GatherPastCache(bucket, order, next, item, out);
  } else {
    GatherRows(bucket, order, next, item, stride, out);
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
  Gather(bucket, order, next, [](T item) { return item; }, stride, out);
}

bool PartitionDifferences(const uint64_t* items, std::span<const uint32_t> places,
                          uint64_t base, uint32_t* out) {
  uint64_t all = 0;
  for (const uint32_t place : places) {
    const uint64_t difference = *items++ - base;
    all |= difference;
    out[place] = static_cast<uint32_t>(difference);
  }
  return all >> 32 == 0;
}

void GatherDifferences(const uint32_t* bucket, std::span<const uint16_t> order,
                       const uint32_t* next, uint64_t base, int64_t stride,
                       uint8_t* out) {
  Gather(
      bucket, order, next, [=](uint32_t difference) { return base + difference; }, stride,
      out);
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
