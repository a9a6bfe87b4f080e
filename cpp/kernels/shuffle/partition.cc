#include "kernels/shuffle/partition.h"

#if defined(__x86_64__)
#include <emmintrin.h>
#endif

#include <algorithm>
#include <array>
#include <cstring>

#include "kernels/item_types.h"
#include "kernels/streaming_stores.h"

namespace torchparquet::kernels {
namespace {

uint8_t* PlaceOf(uint32_t slot, const SlotMap& map) {
  const uint32_t row = slot & ((uint32_t{1} << map.row_bits) - 1);
  // No check: slots come from the reader, not from files.
  return map.batches[slot >> map.row_bits] + row * map.row_bytes;
}

}  // namespace

void ScatterCells(const uint8_t* strip, int64_t cell_bytes,
                  std::span<const uint32_t> slots, const SlotMap& map) {
  for (const uint32_t slot : slots) {
    if (slot != kNoSlot) {
      std::memcpy(PlaceOf(slot, map), strip, static_cast<size_t>(cell_bytes));
    }
    strip += cell_bytes;
  }
}

void GatherCells(const uint8_t* cells, int64_t cell_bytes, std::span<const uint32_t> rows,
                 int64_t row_bytes, uint8_t* out) {
  for (const uint32_t row : rows) {
    std::memcpy(out, cells + row * cell_bytes, static_cast<size_t>(cell_bytes));
    out += row_bytes;
  }
}

namespace {

// Loads items that lie apart, eight or as many as 16 bytes hold, into registers. Items
// stored one by one cannot be loaded together before they have reached the cache.
template <typename T>
struct Packed {
  static constexpr size_t kItems = std::min<size_t>(8, 16 / sizeof(T));

#if defined(__x86_64__)
  template <typename Item>
  static __m128i Make(Item item) {
    if constexpr (sizeof(T) == 8) {
      return _mm_set_epi64x(static_cast<int64_t>(item(1)), static_cast<int64_t>(item(0)));
    } else if constexpr (sizeof(T) == 4) {
      const auto word = [=](size_t i) { return static_cast<int>(item(i)); };
      return _mm_setr_epi32(word(0), word(1), word(2), word(3));
    } else if constexpr (sizeof(T) == 2) {
      const auto word = [=](size_t i) { return static_cast<int16_t>(item(i)); };
      return _mm_setr_epi16(word(0), word(1), word(2), word(3), word(4), word(5), word(6),
                            word(7));
    } else {
      uint64_t bytes = 0;
      for (size_t i = 0; i < kItems; ++i) bytes |= uint64_t{item(i)} << (8 * i);
      return _mm_cvtsi64_si128(static_cast<int64_t>(bytes));
    }
  }
  // `out` need not be aligned.
  static void Store(__m128i items, T* out) {
    std::memcpy(out, &items, kItems * sizeof(T));
  }
  // `out` is aligned to the items together.
  static void StoreStreaming(__m128i items, uint8_t* out) {
    if constexpr (kItems * sizeof(T) == 16) {
      _mm_stream_si128(reinterpret_cast<__m128i*>(out), items);
    } else {
      _mm_stream_si64(reinterpret_cast<long long*>(out), _mm_cvtsi128_si64(items));
    }
  }
#else
  template <typename Item>
  static std::array<T, kItems> Make(Item item) {
    std::array<T, kItems> items;
    for (size_t i = 0; i < kItems; ++i) items[i] = item(i);
    return items;
  }
  static void Store(const std::array<T, kItems>& items, T* out) {
    std::memcpy(out, items.data(), sizeof(items));
  }
  static void StoreStreaming(const std::array<T, kItems>& items, uint8_t* out) {
    std::memcpy(out, items.data(), sizeof(items));
  }
#endif
};

// The address of an item, which may lie beyond the array, as no pointer may.
template <typename T>
const void* AddressOf(const T* items, uint64_t index) {
  const auto begin = reinterpret_cast<uintptr_t>(items);
  return reinterpret_cast<const void*>(begin + index * sizeof(T));
}

// `item` converts a staged item.
template <typename Staged, typename Index, typename Item>
void GatherStreaming(const Staged* bucket, std::span<const Index> order,
                     const Staged* next, Item item, uint8_t* out) {
  using T = decltype(item(Staged{}));
  constexpr size_t kLineItems = kLineBytes / sizeof(T);
  const auto gather = [&](size_t begin, size_t end) {
    for (size_t i = begin; i < end; ++i) {
      const T value = item(bucket[order[i]]);
      std::memcpy(out + i * sizeof(T), &value, sizeof(T));
    }
  };
  const auto misaligned = reinterpret_cast<uintptr_t>(out) % kLineBytes;
  size_t done = misaligned == 0 ? 0 : (kLineBytes - misaligned) / sizeof(T);
  done = std::min(done, order.size());
  gather(0, done);
  for (; done + kLineItems <= order.size(); done += kLineItems) {
    __builtin_prefetch(AddressOf(next, done));
    for (size_t i = done; i < done + kLineItems; i += Packed<T>::kItems) {
      const Index* some = order.data() + i;
      const auto items = Packed<T>::Make([=](size_t k) { return item(bucket[some[k]]); });
      Packed<T>::StoreStreaming(items, out + i * sizeof(T));
    }
  }
  gather(done, order.size());
}

template <typename Staged, typename Index, typename Item>
void GatherRows(const Staged* bucket, std::span<const Index> order, const Staged* next,
                Item item, int64_t stride, uint8_t* out) {
  constexpr size_t kItemBytes = sizeof(item(Staged{}));
  constexpr size_t kLineItems = kLineBytes / kItemBytes;
  for (size_t done = 0; done < order.size(); done += kLineItems) {
    __builtin_prefetch(AddressOf(next, done));
    const size_t end = std::min(order.size(), done + kLineItems);
    for (size_t i = done; i < end; ++i) {
      const auto value = item(bucket[order[i]]);
      std::memcpy(out, &value, kItemBytes);
      out += stride;
    }
  }
}

template <typename Staged, typename Index, typename Item>
void Gather(const Staged* bucket, std::span<const Index> order, const Staged* next,
            Item item, int64_t stride, uint8_t* out) {
  constexpr size_t kItemBytes = sizeof(item(Staged{}));
  const bool is_aligned = reinterpret_cast<uintptr_t>(out) % kItemBytes == 0;
  if (stride == kItemBytes && is_aligned) {
    GatherStreaming(bucket, order, next, item, out);
  } else {
    GatherRows(bucket, order, next, item, stride, out);
  }
}

// Calls `store` with the items of each run and their place in `out`, several at once.
// Most strips have the shortest possible runs, for which the compiler needs no loop.
// Meanwhile the cache prefetches the places of a later strip, which saves 3 % of a pass.
template <int64_t kAtOnce, typename T, typename Store>
void ForRuns(const StripOrder& strip, T* out, Store store) {
  // By value, so that no store can change them.
  const StripOrder runs = strip;
  const auto go = [&](int64_t run_items) {
    T* begin = out + runs.first;
    for (int64_t bucket = 0; bucket < runs.num_runs; ++bucket) {
      const uint16_t* order = runs.order + (bucket ^ runs.turn) * run_items;
      T* to = begin + runs.block_places[bucket] * runs.block_items;
      __builtin_prefetch(AddressOf(to, 2 * static_cast<uint64_t>(run_items)), 1);
      for (int64_t i = 0; i < run_items; i += kAtOnce) store(order + i, to + i);
      begin += runs.stride;
    }
  };
  constexpr int64_t kShortest = 8;
  if (runs.run_items == kShortest) {
    go(kShortest);
  } else {
    go(runs.run_items);
  }
}

}  // namespace

template <typename T>
void Partition(const T* items, std::span<const uint32_t> places, T* out) {
  for (const uint32_t place : places) out[place] = *items++;
}

template <typename T>
void Partition(const T* items, const StripOrder& strip, T* out) {
  constexpr auto kAtOnce = static_cast<int64_t>(Packed<T>::kItems);
  if (strip.run_items % kAtOnce != 0) {
    return ForRuns<1>(strip, out,
                      [=](const uint16_t* order, T* to) { *to = items[*order]; });
  }
  ForRuns<kAtOnce>(strip, out, [=](const uint16_t* order, T* to) {
    Packed<T>::Store(Packed<T>::Make([=](size_t k) { return items[order[k]]; }), to);
  });
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

bool PartitionDifferences(const uint64_t* items, const StripOrder& strip, uint64_t base,
                          uint32_t* out) {
#if defined(__x86_64__)
  if (strip.run_items % 4 == 0) {
    const __m128i bases = _mm_set1_epi64x(static_cast<int64_t>(base));
    __m128i any = _mm_setzero_si128();
    ForRuns<4>(strip, out, [=, &any](const uint16_t* order, uint32_t* to) {
      const auto pair = [=](size_t k) {
        return _mm_sub_epi64(
            Packed<uint64_t>::Make([=](size_t i) { return items[order[k + i]]; }), bases);
      };
      const __m128i first = pair(0);
      const __m128i second = pair(2);
      any = _mm_or_si128(any, _mm_or_si128(first, second));
      const __m128 low_words = _mm_shuffle_ps(
          _mm_castsi128_ps(first), _mm_castsi128_ps(second), _MM_SHUFFLE(2, 0, 2, 0));
      Packed<uint32_t>::Store(_mm_castps_si128(low_words), to);
    });
    std::array<uint64_t, 2> both;
    std::memcpy(both.data(), &any, sizeof(any));
    return (both[0] | both[1]) >> 32 == 0;
  }
#endif
  uint64_t all = 0;
  ForRuns<1>(strip, out, [=, &all](const uint16_t* order, uint32_t* to) {
    const uint64_t difference = items[*order] - base;
    all |= difference;
    *to = static_cast<uint32_t>(difference);
  });
  return all >> 32 == 0;
}

void GatherDifferences(const uint32_t* bucket, std::span<const uint16_t> order,
                       const uint32_t* next, uint64_t base, int64_t stride,
                       uint8_t* out) {
  Gather(
      bucket, order, next, [=](uint32_t difference) { return base + difference; }, stride,
      out);
}

template <typename T>
void GatherItems(const T* items, std::span<const uint32_t> order, int64_t stride,
                 uint8_t* out) {
  const T* none = nullptr;
  Gather(items, order, none, [](T item) { return item; }, stride, out);
}

#define TORCHPARQUET_INSTANTIATE(T)                                                  \
  template void Partition(const T*, std::span<const uint32_t>, T*);                  \
  template void Partition(const T*, const StripOrder&, T*);                          \
  template void GatherBucket(const T*, std::span<const uint16_t>, const T*, int64_t, \
                             uint8_t*);                                              \
  template void GatherItems(const T*, std::span<const uint32_t>, int64_t, uint8_t*);
TORCHPARQUET_FOR_ITEM_TYPES(TORCHPARQUET_INSTANTIATE)
#undef TORCHPARQUET_INSTANTIATE

}  // namespace torchparquet::kernels
