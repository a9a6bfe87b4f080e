#include "reader/schedule/lane_walks.h"

namespace torchparquet {

namespace {

BatchRange BatchesOfRows(const BatchMap& batches, int64_t first_row, int64_t num_rows,
                         int64_t lane) {
  return {batches.Locate(first_row, lane).batch,
          batches.Locate(first_row + num_rows - 1, lane).batch + 1};
}

}  // namespace

BatchRange BatchesOf(const BatchMap& batches, const Slice& slice) {
  return BatchesOfRows(batches, slice.share_row, slice.chunk.rows.num_rows, slice.lane);
}

BatchRange BatchesOf(const BatchMap& batches, const ChunkWindow& window) {
  const int64_t num_rows = window.window.end - window.window.begin;
  return BatchesOfRows(batches, window.share_row, num_rows, window.lane);
}

}  // namespace torchparquet
