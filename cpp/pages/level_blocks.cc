#include "pages/level_blocks.h"

#include <algorithm>

#include "kernels/count_bytes.h"

namespace torchparquet {

int64_t LevelBlock::NumRows() const {
  if (repetition == nullptr) return size;
  return kernels::CountEqual(repetition, size, 0);
}

int64_t LevelBlock::RowBegin(int64_t row) const {
  if (repetition == nullptr) return row;
  const uint8_t* const end = repetition + size;
  const uint8_t* entry = std::find(repetition, end, uint8_t{0});
  for (; row > 0; --row) entry = std::find(entry + 1, end, uint8_t{0});
  return entry - repetition;
}

int64_t PageLevels::NumRows() const {
  kernels::LevelReader reader(repetition, max_repetition);
  std::array<uint8_t, LevelBlocks::kMaxEntries> block;
  int64_t num_rows = 0;
  for (int64_t left = num_entries; left > 0;) {
    const int64_t count = std::min(left, LevelBlocks::kMaxEntries);
    reader.Read(count, block.data());
    num_rows += kernels::CountEqual(block.data(), count, 0);
    left -= count;
  }
  return num_rows;
}

bool PageLevels::begins_in_row() const {
  if (num_entries == 0) return false;
  uint8_t level;
  kernels::LevelReader(repetition, max_repetition).Read(1, &level);
  return level != 0;
}

void LevelBlocks::Open(const PageLevels& page) {
  max_repetition_ = page.max_repetition;
  max_definition_ = page.max_definition;
  if (max_repetition_ > 0) repetition_reader_ = {page.repetition, max_repetition_};
  if (max_definition_ > 0) definition_reader_ = {page.definition, max_definition_};
  num_left_ = page.num_entries;
  position_ = size_ = 0;
}

void LevelBlocks::ReadBlock() {
  position_ = 0;
  const int64_t run =
      max_definition_ > 0 ? definition_reader_.RunOf(max_definition_) : num_left_;
  // A shorter run is not worth a block of its own.
  constexpr int64_t kMinRun = 256;
  all_values_ = run >= std::min(num_left_, kMinRun);
  size_ = all_values_ ? std::min(num_left_, run) : num_left_;
  if (max_repetition_ > 0 || !all_values_) size_ = std::min(size_, kMaxEntries);
  num_left_ -= size_;
  if (max_repetition_ > 0) repetition_reader_.Read(size_, repetition_.data());
  if (!all_values_) {
    definition_reader_.Read(size_, definition_.data());
  } else if (max_definition_ > 0) {
    definition_reader_.Skip(size_);
  }
}

LevelBlock LevelBlocks::Peek() {
  if (position_ == size_ && num_left_ > 0) ReadBlock();
  return {.repetition = max_repetition_ > 0 ? repetition_.data() + position_ : nullptr,
          .definition = all_values_ ? nullptr : definition_.data() + position_,
          .size = size_ - position_};
}

void LevelBlocks::Take(int64_t num_entries) { position_ += num_entries; }

}  // namespace torchparquet
