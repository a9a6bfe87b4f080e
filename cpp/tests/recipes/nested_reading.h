#pragma once

#include <cstring>
#include <memory>
#include <utility>
#include <vector>

#include "columns/column_reader.h"
#include "exact_buffer.h"
#include "recipes/nested_recipe.h"

namespace torchparquet::testing {

constexpr uint64_t kNestedFill = 0x4142434445464748;

// Nothing in them outlives a task, so anything may stand in them at the next.
inline void Scribble(DecodeScratch* scratch) {
  for (ScratchBuffer* buffer : {&scratch->file_bytes, &scratch->page, &scratch->validity,
                                &scratch->dense, &scratch->block}) {
    if (buffer->capacity() > 0) std::memset(buffer->data(), 0xDB, buffer->capacity());
  }
}

inline std::vector<int64_t> StartsOf(const kernels::ByteSink& sink) {
  std::vector<int64_t> starts(sink.size() / sizeof(int64_t));
  if (!starts.empty()) std::memcpy(starts.data(), sink.bytes().data(), sink.size());
  return starts;
}

inline std::vector<uint8_t> BytesOf(const kernels::ByteSink& sink) {
  return {sink.bytes().begin(), sink.bytes().end()};
}

// Keeps the items of each segment.
class ItemsProgress : public DecodeProgress {
 public:
  ItemsProgress(int64_t num_offsets, std::vector<int64_t> segment_rows)
      : num_offsets_(num_offsets), segment_rows_(std::move(segment_rows)) {}

  JaggedItems BeginItems() override {
    return memory_.Begin(0, segment_rows_.at(items_.size()), num_offsets_, true);
  }
  void EndItems(JaggedItems items) override { items_.push_back(std::move(items)); }
  void SegmentDone() override { ++num_done_; }

  std::vector<JaggedItems>& items() { return items_; }
  int64_t num_done() const { return num_done_; }

 private:
  JaggedMemory memory_{{2.}, int64_t{1} << 40, SinkPool::Make(1 << 20, int64_t{1} << 40)};
  const int64_t num_offsets_;
  const std::vector<int64_t> segment_rows_;
  std::vector<JaggedItems> items_;
  int64_t num_done_ = 0;
};

// The contents of a segment, with its offsets completed as those of a batch are.
inline Flat FlatOf(const JaggedItems& items, std::vector<int64_t> row_starts,
                   std::vector<uint8_t> row_valid) {
  Flat flat;
  flat.offsets.push_back(std::move(row_starts));
  for (const SinkPool::Lease& starts : items.starts) {
    flat.offsets.push_back(StartsOf(*starts.operator->()));
  }
  for (size_t level = 0; level < flat.offsets.size(); ++level) {
    flat.offsets[level].push_back(items.num_items.at(level));
  }
  flat.values = BytesOf(*items.values.operator->());
  flat.item_valid = BytesOf(*items.valid.operator->());
  flat.row_valid = std::move(row_valid);
  return flat;
}

}  // namespace torchparquet::testing
