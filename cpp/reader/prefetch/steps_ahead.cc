#include "reader/prefetch/steps_ahead.h"

#include "remote/blocks/remote_file.h"
#include "remote/transport/fetch.h"

namespace torchparquet {
namespace {

constexpr size_t kStepsAhead = 32;
constexpr size_t kMaxFootersAhead = 64;

}  // namespace

StepsAhead::StepsAhead(std::shared_ptr<ReaderFiles> files,
                       std::shared_ptr<RemoteReads> reads,
                       std::vector<StoredColumn> columns, NextSteps next_steps)
    : files_(std::move(files)),
      reads_(std::move(reads)),
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
  DropIndexes(step);
  DropFooter(step.file);
  return std::move(chunks).value_or(std::vector<ChunkBytes>());
}

void StepsAhead::AskForFooter(int64_t file) {
  if (!files_->is_remote(file) || files_->has_footer(file)) return;
  const auto& object = files_->remote(file);
  const ByteRange end = RemoteFile::FooterRange(*object);
  if (end.num_bytes == 0 || !footers_.insert(file).second) return;
  reads_->Hold(std::make_shared<Fetch>(object, end), {end});
}

// Once the file is open, or was found to be none.
void StepsAhead::DropFooter(int64_t file) {
  if (footers_.erase(file) == 0) return;
  const auto& object = files_->remote(file);
  reads_->Drop(*object, RemoteFile::FooterRange(*object).offset);
}

// Of row groups of which only parts are read.
void StepsAhead::AskForIndexes(const ReadStep& step) {
  const GroupPlace place{step.file, step.row_group};
  if (!files_->is_remote(step.file) || indexes_.contains(place)) return;
  const ByteRange range = IndexesOf(step, files_.get(), columns_);
  if (range.num_bytes == 0) return;
  indexes_[place] = range;
  reads_->Hold(std::make_shared<Fetch>(files_->remote(step.file), range), {range});
}

void StepsAhead::DropIndexes(const ReadStep& step) {
  const auto found = indexes_.find({step.file, step.row_group});
  if (found == indexes_.end()) return;
  reads_->Drop(*files_->remote(step.file), found->second.offset);
  indexes_.erase(found);
}

}  // namespace torchparquet
