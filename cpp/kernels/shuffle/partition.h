#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace torchparquet::kernels {

// A slot has the number of a batch in its upper bits and a row of the batch in the rest.
// kNoSlot is the slot of rows that are not delivered.
constexpr uint32_t kNoSlot = 0xFFFFFFFF;

// The places of slots: the cells of one field's element in each batch.
struct SlotMap {
  std::span<uint8_t* const> batches;  // the place of row 0 in each
  int row_bits = 0;                   // of a slot
  int64_t row_bytes = 0;              // from row to row
};

// Copies the cells of a strip, one for each slot, in order.
void ScatterCells(const uint8_t* strip, int64_t cell_bytes,
                  std::span<const uint32_t> slots, const SlotMap& map);

// Copies the cells of rows by number, in that order, `row_bytes` apart. Nothing need be
// aligned.
void GatherCells(const uint8_t* cells, int64_t cell_bytes, std::span<const uint32_t> rows,
                 int64_t row_bytes, uint8_t* out);

// Permutes more items than the cache holds, in two passes. The first pass brings items to
// buckets and writes each bucket in order. The second pass permutes each bucket within
// the cache. For items of 4 bytes this takes half the time of writing each item straight
// to its place. T is uint8_t, uint16_t, uint32_t or uint64_t.

// Writes each item to its place: out[places[i]] = items[i].
template <typename T>
void Partition(const T* items, std::span<const uint32_t> places, T* out);

// The places of all items of a strip. Bucket b has a run of them: the items `order[(b ^
// turn) * run_items]` and on, at the places from `b * stride + block_places[b] *
// block_items + first` on.
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

// Writes the items of a strip, at half the cost of single places.
template <typename T>
void Partition(const T* items, const StripOrder& strip, T* out);

// Writes the items of a bucket in the given order, `stride` bytes apart; `out` need not
// be aligned. Meanwhile the cache prefetches as many items from `next` on, if it is not
// null, which saves a tenth of the time. Rows of one item are written by streaming
// stores, which saves a quarter for large windows and costs nothing for small ones. Call
// EndStreamingStores after the last bucket.
template <typename T>
void GatherBucket(const T* bucket, std::span<const uint16_t> order, const T* next,
                  int64_t stride, uint8_t* out);

// The same for items of a whole window, some of which may be there several times. On an
// EPYC with 1,048,576 items, streaming stores take a third of the time away.
template <typename T>
void GatherItems(const T* items, std::span<const uint32_t> order, int64_t stride,
                 uint8_t* out);

// As GatherBucket for items that lie close together: buckets hold their differences to
// `base`, in half of the memory. Returns true if each difference fits 32 bits. If not,
// the written data is of no use.
bool PartitionDifferences(const uint64_t* items, std::span<const uint32_t> places,
                          uint64_t base, uint32_t* out);
bool PartitionDifferences(const uint64_t* items, const StripOrder& strip, uint64_t base,
                          uint32_t* out);
void GatherDifferences(const uint32_t* bucket, std::span<const uint16_t> order,
                       const uint32_t* next, uint64_t base, int64_t stride, uint8_t* out);

}  // namespace torchparquet::kernels
