#include "reader/plan/share.h"

#include <algorithm>
#include <string>
#include <utility>

#include "base/ceil_divide.h"
#include "base/errors.h"

namespace torchparquet {

namespace {

// Positions of the order, with those that fill up its last turn.
int64_t NumTurnPositions(const Share& share) {
  const int64_t size = share.order == nullptr ? 0 : share.order->size();
  return CeilDivide(size, share.world_size) * share.world_size;
}

ChunkCursor CursorOf(const Share& share) {
  if (share.claims != nullptr) return ChunkCursor(share.claims);
  return {NumTurnPositions(share) + std::ssize(share.chunks) * share.world_size,
          share.rank, share.world_size};
}

// `num_rows` are those of the share's chunks.
void CheckWindows(const Share& share, int64_t num_rows) {
  if (share.windows.empty()) return;
  for (const Window& window : share.windows) {
    if (window.num_rows < 0 || window.num_rows > num_rows) {
      throw InvalidArgument("the windows of a share hold more rows than it has");
    }
    num_rows -= window.num_rows;
    const int64_t num_positions = window.num_positions();
    if (window.begin < 0 || window.begin > window.end || window.end > num_positions) {
      throw InvalidArgument("a window has not the positions that it is to deliver: [",
                            window.begin, ", ", window.end, ") of ", num_positions);
    }
    if ((window.order == nullptr) != (share.windows[0].order == nullptr)) {
      throw InvalidArgument("either all windows of a share have an order, or none");
    }
    if (num_positions > 0 && window.order != nullptr &&
        std::ranges::max(*window.order) >= window.num_rows) {
      throw InvalidArgument("the order of a window has rows that the window has not");
    }
  }
  if (num_rows != 0)
    throw InvalidArgument("the windows of a share hold fewer rows than it has");
}

// Cuts each chunk to equal parts that are as small as the split wants them.
std::vector<Chunk> CutChunks(const std::vector<Chunk>& chunks, const WorkSplit& split) {
  int64_t num_rows = 0;
  for (const Chunk& chunk : chunks) num_rows += chunk.rows.num_rows;
  const int64_t max_rows = split.MaxRows(num_rows);
  std::vector<Chunk> parts;
  for (const Chunk& chunk : chunks) {
    const int64_t num_parts = CeilDivide(chunk.rows.num_rows, max_rows);
    const int64_t part_rows = CeilDivide(chunk.rows.num_rows, num_parts);
    for (Chunk rest = chunk; rest.rows.num_rows > 0;) {
      Chunk part = rest;
      part.rows.num_rows = std::min(part_rows, rest.rows.num_rows);
      rest.DropFirst(part.rows.num_rows);
      parts.push_back(part);
    }
  }
  return parts;
}

}  // namespace

Chunk RowGroups::ChunkOf(int64_t row_group, int64_t begin, int64_t num_rows,
                         bool valid) const {
  if (row_group < 0 || row_group >= std::ssize(file) || begin < 0 || num_rows < 0) {
    throw InvalidArgument("a chunk of a share is outside the row groups");
  }
  const auto at = static_cast<size_t>(row_group);
  return {.file = file[at],
          .rows = {.row_group = in_file[at], .begin = begin, .num_rows = num_rows},
          .first_row_id = first_row[at] + (are_selected ? 0 : begin),
          .valid = valid,
          .selection = are_selected ? row_group : -1,
          .planned_begin = begin,
          .planned_rows = num_rows,
          .row_group_sequences = num_sequences.empty() ? -1 : num_sequences[at]};
}

Chunk EpochOrder::At(int64_t position) const {
  if (position < 0 || position >= size()) {
    throw InvalidArgument("a position is outside the order: ", position);
  }
  const auto at = static_cast<size_t>(position);
  return row_groups->ChunkOf(row_group[at], begin[at], num_rows[at]);
}

int64_t CheckShare(const Share& share, const std::function<void(const Chunk&)>& check) {
  CheckRank(share.rank, share.world_size);
  if (share.dealt_rows < 0 || share.skipped_rows < 0) {
    throw InvalidArgument("a share keeps or skips fewer than 0 rows");
  }
  if (share.claims != nullptr &&
      (share.order == nullptr || !share.chunks.empty() || !share.windows.empty())) {
    throw InvalidArgument(
        "a share of claims has an order, and neither further chunks nor windows");
  }
  for (const Chunk& chunk : share.chunks) {
    if (chunk.file < 0 || chunk.rows.begin < 0 || chunk.rows.num_rows < 0) {
      throw InvalidArgument("a chunk of a share has a file or rows below 0");
    }
  }
  int64_t num_rows = 0;
  VisitChunks(share, [&](const Chunk& chunk) {
    if (check) check(chunk);
    num_rows += chunk.rows.num_rows;
  });
  CheckWindows(share, num_rows);
  return share.windows.empty() ? num_rows : NumRows(share);
}

int64_t NumRows(const Share& share) {
  int64_t num_rows = 0;
  if (share.windows.empty()) {
    VisitChunks(share, [&](const Chunk& chunk) { num_rows += chunk.rows.num_rows; });
  }
  for (const Window& window : share.windows) num_rows += window.end - window.begin;
  return num_rows;
}

ChunkWalk::ChunkWalk(const Share* share)
    : share_(share),
      cursor_(CursorOf(*share)),
      dealt_left_(share->dealt_rows),
      skipped_left_(share->skipped_rows) {}

// The next chunk, cut where the rows that the share keeps of those dealt to it end.
std::optional<Chunk> ChunkWalk::Claimed() {
  const auto position = cursor_.Claim();
  if (!position) return std::nullopt;
  if (share_->order == nullptr || *position >= share_->order->size()) {
    const int64_t further = *position - NumTurnPositions(*share_);
    // The last turn of the order may not reach the rank.
    if (further < 0) return Chunk();
    return share_->chunks[static_cast<size_t>(further / share_->world_size)];
  }
  // The other chunks dealt to the share are no longer its own.
  if (dealt_left_ == 0) return Chunk();
  Chunk chunk = share_->order->At(*position);
  chunk.rows.num_rows = std::min(chunk.rows.num_rows, dealt_left_);
  dealt_left_ -= chunk.rows.num_rows;
  return chunk;
}

std::optional<Chunk> ChunkWalk::Next() {
  return Next(std::numeric_limits<int64_t>::max());
}

std::optional<Chunk> ChunkWalk::Next(int64_t max_rows) {
  while (!rest_) {
    rest_ = Claimed();
    if (!rest_) return std::nullopt;
    const int64_t skipped = std::min(rest_->rows.num_rows, skipped_left_);
    skipped_left_ -= skipped;
    rest_->DropFirst(skipped);
    if (rest_->rows.num_rows == 0) rest_.reset();
  }
  Chunk next = *rest_;
  next.rows.num_rows = std::min(next.rows.num_rows, max_rows);
  next.planned_begin = next.rows.begin;
  next.planned_rows = next.rows.num_rows;
  rest_->DropFirst(next.rows.num_rows);
  if (rest_->rows.num_rows == 0) rest_.reset();
  return next;
}

void VisitChunks(const Share& share, const std::function<void(const Chunk&)>& visit) {
  if (share.claims != nullptr) {
    for (int64_t i = 0; i < share.order->size(); ++i) visit(share.order->At(i));
    return;
  }
  ChunkWalk walk(&share);
  while (const auto chunk = walk.Next()) visit(*chunk);
}

void Chunk::DropFirst(int64_t num_rows) {
  rows.begin += num_rows;
  rows.num_rows -= num_rows;
  if (selection < 0) first_row_id += num_rows;
}

int64_t WorkSplit::MaxRows(int64_t num_rows) const {
  return std::max(CeilDivide(num_rows, num_parts), least_rows);
}

WindowWalk::WindowWalk(const Share* share, const WorkSplit& split, int64_t lane)
    : share_(share), split_(split), lane_(lane), chunks_(share) {
  Advance();
}

void WindowWalk::Advance() {
  next_.reset();
  while (!next_ && number_ < share_->windows.size()) {
    ChunkWindow found{share_->windows[number_++], {}, lane_, share_row_};
    for (int64_t left = found.window.num_rows; left > 0;) {
      found.chunks.push_back(chunks_.Next(left).value());
      left -= found.chunks.back().rows.num_rows;
    }
    found.chunks = CutChunks(found.chunks, split_);
    if (found.window.begin == found.window.end) continue;
    share_row_ += found.window.end - found.window.begin;
    next_ = std::move(found);
  }
}

SliceWalk::SliceWalk(const Share* share, const SliceCut& cut, int64_t lane)
    : cut_(cut),
      lane_(lane),
      num_rows_(share->claims == nullptr && cut.split.num_parts > 1 ? NumRows(*share)
                                                                    : -1),
      chunks_(share) {
  Advance();
}

void SliceWalk::Advance() {
  next_.reset();
  if (!rest_) {
    rest_ = chunks_.Next();
    chunk_number_ += rest_.has_value();
  }
  if (rest_) CutSlice();
}

int64_t SliceWalk::MaxRows() const {
  // A share of claims has rows that nobody knows yet: each chunk is cut by itself.
  const int64_t rest_rows = num_rows_ < 0 ? rest_->rows.num_rows : num_rows_ - share_row_;
  return std::min(cut_.max_rows,
                  std::max(cut_.split.MaxRows(rest_rows), cut_.batch_rows));
}

void SliceWalk::CutSlice() {
  next_ = Slice{.chunk = *rest_,
                .lane = lane_,
                .share_row = share_row_,
                .chunk_number = chunk_number_};
  int64_t num_rows = rest_->rows.num_rows;
  if (num_rows > MaxRows()) {
    num_rows = MaxRows();
    if (cut_.batch_rows > 0) num_rows -= (share_row_ + num_rows) % cut_.batch_rows;
  }
  next_->chunk.rows.num_rows = num_rows;
  share_row_ += num_rows;
  rest_->DropFirst(num_rows);
  if (rest_->rows.num_rows > 0) return;
  next_->ends_chunk = true;
  rest_.reset();
}

}  // namespace torchparquet
