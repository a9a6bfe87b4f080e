#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace torchparquet::kernels {

// A permutation of more items than the cache holds, in two passes: the first brings them
// to buckets, each of which it writes in order; the second permutes each bucket within
// the cache. On items of 4 bytes that takes half the time of writing each straight to its
// place.
// T is uint8_t, uint16_t, uint32_t or uint64_t.

// Writes each item to its place: out[places[i]] = items[i].
template <typename T>
void Partition(const T* items, std::span<const uint32_t> places, T* out);

// Where the items of a strip go, all at once: bucket b has a run of them, those of the
// numbers `order[(b ^ turn) * run_items]` and on, from place
// `b * stride + block_places[b] * block_items + first` on.
struct StripOrder {
  const uint16_t* order = nullptr;
  const uint16_t* block_places = nullptr;
  uint32_t turn = 0;
  int64_t num_runs = 0;  // a power of two
  int64_t run_items = 0;
  int64_t block_items = 0;
  int64_t first = 0;
  int64_t stride = 0;

  size_t size() const { return static_cast<size_t>(num_runs * run_items); }
};

// Writes a strip's items, at half the cost of single places.
template <typename T>
void Partition(const T* items, const StripOrder& strip, T* out);

// Writes the items of a bucket in that order, `stride` bytes from each to the next; `out`
// need not be aligned. Meanwhile the cache fetches as many items from `next` on, where
// there are any: that takes a tenth off the whole. Rows of one item are stored past the
// cache, without fetching what they overwrite: a quarter off for large windows, nothing
// lost for small ones. EndStreamingStores is to be called when all buckets are done.
template <typename T>
void GatherBucket(const T* bucket, std::span<const uint16_t> order, const T* next,
                  int64_t stride, uint8_t* out);

// The same for items that lie close together, which are brought to buckets as their
// differences to `base`, in half of the memory. Returns whether each of them fits 32
// bits; where not, what was written is of no use.
bool PartitionDifferences(const uint64_t* items, std::span<const uint32_t> places,
                          uint64_t base, uint32_t* out);
bool PartitionDifferences(const uint64_t* items, const StripOrder& strip, uint64_t base,
                          uint32_t* out);
void GatherDifferences(const uint32_t* bucket, std::span<const uint16_t> order,
                       const uint32_t* next, uint64_t base, int64_t stride, uint8_t* out);

}  // namespace torchparquet::kernels
