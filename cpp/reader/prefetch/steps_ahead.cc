#include "reader/prefetch/steps_ahead.h"

#include "remote/blocks/remote_file.h"

namespace torchparquet {
namespace {

constexpr size_t kStepsAhead = 32;
constexpr size_t kMaxFootersAhead = 64;

}  // namespace

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
