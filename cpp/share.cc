#include "share.h"

#include <algorithm>

namespace torchparquet {

SliceWalk::SliceWalk(const Share* share, const SliceCut& cut)
    : share_(share),
      cut_(cut),
      cursor_(static_cast<int64_t>(share->chunks.size()) * share->world_size, share->rank,
              share->world_size) {
  Advance();
}

void SliceWalk::Advance() {
  next_.reset();
  ClaimChunk();
  if (rest_) CutSlice();
}

// Leaves in rest_ what is still to be cut, claiming chunks until one has rows.
void SliceWalk::ClaimChunk() {
  while (!rest_) {
    const auto position = cursor_.Claim();
    if (!position) return;
    const Chunk& chunk =
        share_->chunks[static_cast<size_t>(*position / share_->world_size)];
    if (chunk.rows.num_rows == 0) continue;
    rest_ = chunk;
    ++chunk_number_;
  }
}

void SliceWalk::CutSlice() {
  next_ = Slice{.chunk = *rest_, .share_row = share_row_, .chunk_number = chunk_number_};
  int64_t num_rows = rest_->rows.num_rows;
  if (num_rows > cut_.max_rows) {
    num_rows = cut_.max_rows;
    if (cut_.batch_rows > 0) num_rows -= (share_row_ + num_rows) % cut_.batch_rows;
  }
  next_->chunk.rows.num_rows = num_rows;
  share_row_ += num_rows;
  rest_->rows.begin += num_rows;
  rest_->rows.num_rows -= num_rows;
  rest_->first_row_id += num_rows;
  if (rest_->rows.num_rows > 0) return;
  next_->ends_chunk = true;
  rest_.reset();
}

}  // namespace torchparquet
