#include "reader/prefetch/steps_ahead.h"

#include <algorithm>
#include <cstddef>
#include <string>

#include "base/errors.h"
#include "format/offset_index.h"
#include "remote/blocks/remote_file.h"

namespace torchparquet {
namespace {

constexpr size_t kStepsAhead = 32;
constexpr size_t kMaxFootersAhead = 64;

// Calls use(column, leaf) for each column that the file has.
template <typename Use>
void ForLeaves(const ParquetFile& file, int64_t file_number,
               const std::vector<StoredColumn>& columns, Use use) {
  for (size_t i = 0; i < columns.size(); ++i) {
    const std::string* path = columns[i].In(file_number);
    const int leaf = path == nullptr ? -1 : file.FindLeaf(*path);
    if (leaf >= 0) use(static_cast<int64_t>(i), leaf);
  }
}

// The step's rows, which may be none if the file is no longer the planned one.
RowRun RowsOf(const ReadStep& step, const ParquetFile& file) {
  const auto row_group = static_cast<size_t>(step.row_group);
  if (row_group >= file.row_groups().size()) return {};
  const int64_t num_rows = file.row_groups()[row_group].num_rows;
  if (step.rows.num_rows() == 0) return {0, num_rows};
  return {std::min(step.rows.begin, num_rows), std::min(step.rows.end, num_rows)};
}

// True if the step passes over so many rows together that pages without any other are
// likely: then it may read less than whole column chunks.
bool LeavesOutPages(const ReadStep& step, const ParquetFile& file) {
  constexpr int64_t kLeastRows = 1024;
  constexpr int64_t kLeastPart = 8;
  const RowRun rows = RowsOf(step, file);
  const int64_t group_rows =
      rows.num_rows() == 0
          ? 0
          : file.row_groups()[static_cast<size_t>(step.row_group)].num_rows;
  int64_t left_out = 0;
  const auto leave_out = [&](int64_t num_rows) {
    if (num_rows >= kLeastRows) left_out += num_rows;
  };
  int64_t row = 0;
  if (step.selection == nullptr) {
    leave_out(rows.begin);
    row = rows.end;
  } else {
    size_t near = 0;
    int64_t from = rows.begin;
    for (RowRun run = step.selection->NextRun(from, &near);
         run.num_rows() > 0 && run.begin < rows.end;
         run = step.selection->NextRun(from, &near)) {
      leave_out(run.begin - row);
      row = from = run.end;
    }
  }
  leave_out(group_rows - row);
  return left_out * kLeastPart > group_rows;
}

// The dictionary, and pages with a row that is read, neighbours together. The last row of
// a page of lists may go on in the next page. Empty if that is nearly everything.
std::vector<ByteRange> PartsOf(const ByteRange& chunk, const OffsetIndex& index,
                               const RowRun& rows, const RowSelection* selection,
                               bool is_list) {
  std::vector<ByteRange> parts;
  int64_t num_bytes = 0;
  const auto add = [&](const ByteRange& part) {
    if (part.num_bytes == 0) return;
    num_bytes += part.num_bytes;
    if (!parts.empty() && parts.back().end() == part.offset) {
      parts.back().num_bytes += part.num_bytes;
    } else {
      parts.push_back(part);
    }
  };
  add({chunk.offset, index.first_offset() - chunk.offset});  // none: empty
  size_t page = 0;  // the first that is not looked at yet
  size_t near = 0;
  for (int64_t row = rows.begin; row < rows.end;) {
    RowRun run = rows;
    if (selection != nullptr) run = selection->NextRun(row, &near);
    if (run.num_rows() == 0 || run.begin >= rows.end) break;
    const int64_t end = std::min(run.end, rows.end) + (is_list ? 1 : 0);
    page = std::max(page, index.PageOfRow(run.begin));
    for (; page < index.num_pages() && index.first_row(page) < end; ++page) {
      add(index.bytes(page));
    }
    row = run.end;
  }
  const bool is_most = num_bytes * 8 > chunk.num_bytes * 7;
  return is_most ? std::vector<ByteRange>() : parts;
}

// The bytes of the offset indexes that ChunksOf would read, if they lie close together;
// else, or if there are none, an empty range. May wait for a footer.
ByteRange IndexesOf(const ReadStep& step, ReaderFiles* files,
                    const std::vector<StoredColumn>& columns) {
  ByteRange all;
  int64_t num_bytes = 0;
  try {
    const auto file = files->Open(step.file);
    if (!LeavesOutPages(step, *file)) return {};
    ForLeaves(*file, step.file, columns, [&](int64_t, int leaf) {
      if (file->KnownOffsetIndex(step.row_group, leaf) != nullptr) return;
      const ByteRange range = file->OffsetIndexRange(step.row_group, leaf);
      if (range.num_bytes == 0) return;
      num_bytes += range.num_bytes;
      if (all.num_bytes == 0) {
        all = range;
        return;
      }
      const int64_t begin = std::min(all.offset, range.offset);
      all = {begin, std::max(all.end(), range.end()) - begin};
    });
  } catch (const Error&) {
    return {};
  }
  return all.num_bytes > num_bytes + kMaxHoleBytes ? ByteRange{} : all;
}

}  // namespace

std::optional<std::vector<ChunkBytes>> ChunksOf(const ReadStep& step, ReaderFiles* files,
                                                const std::vector<StoredColumn>& columns,
                                                bool reads_indexes) {
  std::vector<ChunkBytes> chunks;
  try {
    const auto file = files->Open(step.file);
    const bool by_pages = LeavesOutPages(step, *file);
    const RowRun rows = RowsOf(step, *file);
    ForLeaves(*file, step.file, columns, [&](int64_t column, int leaf) {
      ChunkBytes& chunk =
          chunks.emplace_back(ChunkBytes{column, file->ChunkRange(step.row_group, leaf)});
      if (!by_pages) return;
      const auto index = reads_indexes ? file->ReadOffsetIndex(step.row_group, leaf)
                                       : file->KnownOffsetIndex(step.row_group, leaf);
      if (index == nullptr) return;
      const bool is_list =
          !file->leaves()[static_cast<size_t>(leaf)].element_levels.empty();
      chunk.parts = PartsOf(chunk.range, *index, rows, step.selection.get(), is_list);
    });
  } catch (const Error&) {
    return std::nullopt;
  }
  return chunks;
}

StepsAhead::StepsAhead(std::shared_ptr<ReaderFiles> files,
                       std::shared_ptr<RemoteBlocks> blocks,
                       std::vector<StoredColumn> columns, NextSteps next_steps)
    : files_(std::move(files)),
      blocks_(std::move(blocks)),
      columns_(std::move(columns)),
      next_steps_(std::move(next_steps)) {}

std::optional<std::vector<ReadStep>> StepsAhead::Take() {
  while (!is_at_end_ && upcoming_.size() < kStepsAhead &&
         footers_.size() < kMaxFootersAhead) {
    auto steps = next_steps_();
    is_at_end_ = !steps;
    if (!steps || steps->empty()) break;
    for (const ReadStep& step : *steps) {
      AskForFooter(step.file);
      if (files_->has_footer(step.file)) AskForIndexes(step);
    }
    upcoming_.push_back(std::move(*steps));
  }
  if (upcoming_.empty()) {
    auto steps = is_at_end_ ? std::nullopt : next_steps_();
    is_at_end_ = !steps;
    return steps;
  }
  auto next = std::move(upcoming_.front());
  upcoming_.pop_front();
  return next;
}

std::vector<ChunkBytes> StepsAhead::Chunks(const ReadStep& step) {
  AskForIndexes(step);
  auto chunks = ChunksOf(step, files_.get(), columns_, /*reads_indexes=*/true);
  indexes_.erase({step.file, step.row_group});
  footers_.erase(step.file);  // the file is open, or was found to be none
  return std::move(chunks).value_or(std::vector<ChunkBytes>());
}

void StepsAhead::AskForFooter(int64_t file) {
  if (!files_->is_remote(file) || files_->has_footer(file) || footers_.contains(file)) {
    return;
  }
  const auto& object = files_->remote(file);
  const ByteRange end = RemoteFile::FooterRange(*object);
  if (end.num_bytes > 0) footers_[file] = blocks_->Hold(object, end);
}

// Of row groups of which only parts are read.
void StepsAhead::AskForIndexes(const ReadStep& step) {
  const GroupPlace place{step.file, step.row_group};
  if (!files_->is_remote(step.file) || indexes_.contains(place)) return;
  const ByteRange range = IndexesOf(step, files_.get(), columns_);
  if (range.num_bytes == 0) return;
  indexes_[place] = blocks_->Hold(files_->remote(step.file), range);
}

}  // namespace torchparquet
