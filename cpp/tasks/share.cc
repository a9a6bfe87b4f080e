#include "tasks/share.h"

#include <algorithm>
#include <functional>
#include <initializer_list>
#include <string>
#include <string_view>
#include <utility>

#include "ceil_divide.h"
#include "errors.h"

namespace torchparquet {

namespace {

ChunkCursor CursorOf(const Share& share) {
  return {static_cast<int64_t>(share.chunks.size()) * share.world_size, share.rank,
          share.world_size};
}

const Chunk& ChunkAt(const Share& share, int64_t position) {
  return share.chunks[static_cast<size_t>(position / share.world_size)];
}

void CheckLengths(std::string_view name, std::initializer_list<size_t> lengths) {
  if (std::ranges::adjacent_find(lengths, std::ranges::not_equal_to()) == lengths.end())
    return;
  throw Error(ErrorKind::kInvalidArgument,
              "the arrays of a share's " + std::string(name) + " differ in length");
}

void CheckWindows(const Share& share) {
  if (share.windows.empty()) return;
  size_t chunk = 0;
  for (const Window& window : share.windows) {
    const size_t rest = share.chunks.size() - chunk;
    if (window.num_chunks < 0 || static_cast<size_t>(window.num_chunks) > rest) {
      throw Error(ErrorKind::kInvalidArgument,
                  "the windows of a share hold more chunks than it has");
    }
    int64_t num_rows = 0;
    for (int64_t i = 0; i < window.num_chunks; ++i) {
      num_rows += share.chunks[chunk++].rows.num_rows;
    }
    if (window.begin < 0 || window.begin > window.end || window.end > num_rows) {
      throw Error(ErrorKind::kInvalidArgument,
                  "a window has not the positions that it is to deliver: [" +
                      std::to_string(window.begin) + ", " + std::to_string(window.end) +
                      ") of " + std::to_string(num_rows));
    }
  }
  if (chunk != share.chunks.size()) {
    throw Error(ErrorKind::kInvalidArgument,
                "the windows of a share hold fewer chunks than it has");
  }
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
      rest.rows.begin += part.rows.num_rows;
      rest.rows.num_rows -= part.rows.num_rows;
      if (rest.selection < 0) rest.first_row_id += part.rows.num_rows;
      parts.push_back(part);
    }
  }
  return parts;
}

}  // namespace

Share MakeShare(int64_t rank, int64_t world_size, const ChunkArrays& chunks,
                const WindowArrays& windows) {
  const size_t num_chunks = chunks.file.size();
  const std::span<const int64_t> sequences = chunks.row_group_sequences;
  CheckLengths("chunks",
               {num_chunks, chunks.row_group.size(), chunks.begin.size(),
                chunks.num_rows.size(), chunks.first_row_id.size(), chunks.valid.size(),
                chunks.selection.empty() ? num_chunks : chunks.selection.size(),
                sequences.empty() ? num_chunks : sequences.size()});
  CheckLengths("windows", {windows.num_chunks.size(), windows.key.size(),
                           windows.begin.size(), windows.end.size()});
  Share share{.rank = rank, .world_size = world_size, .chunks = {}};
  share.chunks.reserve(num_chunks);
  for (size_t i = 0; i < num_chunks; ++i) {
    share.chunks.push_back(
        {.file = chunks.file[i],
         .rows = {.row_group = chunks.row_group[i],
                  .begin = chunks.begin[i],
                  .num_rows = chunks.num_rows[i]},
         .first_row_id = chunks.first_row_id[i],
         .valid = chunks.valid[i],
         .selection = chunks.selection.empty() ? -1 : chunks.selection[i],
         .planned_begin = chunks.begin[i],
         .planned_rows = chunks.num_rows[i],
         .row_group_sequences = sequences.empty() ? -1 : sequences[i]});
  }
  share.windows.reserve(windows.key.size());
  for (size_t i = 0; i < windows.key.size(); ++i) {
    share.windows.push_back({.num_chunks = windows.num_chunks[i],
                             .key = windows.key[i],
                             .begin = windows.begin[i],
                             .end = windows.end[i]});
  }
  CheckShare(share);
  return share;
}

void CheckShare(const Share& share) {
  CheckRank(share.rank, share.world_size);
  for (const Chunk& chunk : share.chunks) {
    if (chunk.file < 0 || chunk.rows.begin < 0 || chunk.rows.num_rows < 0) {
      throw Error(ErrorKind::kInvalidArgument,
                  "a chunk of a share has a file or rows below 0");
    }
  }
  CheckWindows(share);
}

int64_t NumRows(const Share& share) {
  int64_t num_rows = 0;
  if (share.windows.empty()) {
    for (const Chunk& chunk : share.chunks) num_rows += chunk.rows.num_rows;
  }
  for (const Window& window : share.windows) num_rows += window.end - window.begin;
  return num_rows;
}

int64_t WorkSplit::MaxRows(int64_t num_rows) const {
  return std::max(CeilDivide(num_rows, num_parts), least_rows);
}

WindowWalk::WindowWalk(const Share* share, const WorkSplit& split, int64_t lane)
    : share_(share), split_(split), lane_(lane), cursor_(CursorOf(*share)) {
  Advance();
}

void WindowWalk::Advance() {
  next_.reset();
  while (!next_ && number_ < share_->windows.size()) {
    ChunkWindow found{share_->windows[number_++], {}, lane_, share_row_};
    for (int64_t i = 0; i < found.window.num_chunks; ++i) {
      const Chunk& chunk = ChunkAt(*share_, cursor_.Claim().value());
      if (chunk.rows.num_rows > 0) found.chunks.push_back(chunk);
    }
    found.chunks = CutChunks(found.chunks, split_);
    if (found.window.begin == found.window.end) continue;
    share_row_ += found.window.end - found.window.begin;
    next_ = std::move(found);
  }
}

SliceWalk::SliceWalk(const Share* share, const SliceCut& cut, int64_t lane)
    : share_(share),
      cut_(cut),
      lane_(lane),
      num_rows_(NumRows(*share)),
      cursor_(CursorOf(*share)) {
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
    const Chunk& chunk = ChunkAt(*share_, *position);
    if (chunk.rows.num_rows == 0) continue;
    rest_ = chunk;
    ++chunk_number_;
  }
}

int64_t SliceWalk::MaxRows() const {
  const int64_t rest_rows = num_rows_ - share_row_;
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
  rest_->rows.begin += num_rows;
  rest_->rows.num_rows -= num_rows;
  if (rest_->selection < 0) rest_->first_row_id += num_rows;
  if (rest_->rows.num_rows > 0) return;
  next_->ends_chunk = true;
  rest_.reset();
}

}  // namespace torchparquet
