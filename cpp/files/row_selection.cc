#include "files/row_selection.h"

#include <algorithm>
#include <bit>

namespace torchparquet {

RowSelection RowSelection::OfRuns(std::span<const uint64_t> runs) {
  RowSelection selection;
  selection.runs_ = runs;
  selection.counts_.reserve(runs.size());
  for (size_t i = 0; i < runs.size(); ++i) {
    selection.num_rows_ += selection.RunOf(i).num_rows();
    selection.counts_.push_back(selection.num_rows_);
  }
  return selection;
}

RowSelection RowSelection::OfBits(std::span<const kernels::BitWord> words) {
  RowSelection selection;
  selection.words_ = words;
  selection.has_bits_ = true;
  const auto block_words = static_cast<size_t>(kBlockWords);
  selection.counts_.reserve(words.size() / block_words + 1);
  for (size_t i = 0; i < words.size(); i += block_words) {
    selection.counts_.push_back(selection.num_rows_);
    selection.num_rows_ +=
        kernels::CountBits(words.subspan(i, std::min(block_words, words.size() - i)));
  }
  return selection;
}

// The number of the first run that ends after `row`. It is found sooner if it comes soon
// after run `near`.
size_t RowSelection::FirstRunAfter(int64_t row, size_t near) const {
  const size_t num_runs = counts_.size();
  const bool is_after = near == 0 || (near <= num_runs && RunOf(near - 1).end <= row);
  size_t low = is_after ? near : 0;
  constexpr int kMaxSteps = 4;
  for (int i = 0; i < kMaxSteps; ++i, ++low) {
    if (low == num_runs || RunOf(low).end > row) return low;
  }
  size_t high = num_runs;
  while (low < high) {
    const size_t middle = low + (high - low) / 2;
    if (RunOf(middle).end <= row) {
      low = middle + 1;
    } else {
      high = middle;
    }
  }
  return low;
}

int64_t RowSelection::IndexOf(int64_t row) const {
  if (has_bits_) {
    if (row >= end_of_bits()) return num_rows_;
    const int64_t block = row / kBlockRows;
    const int64_t word = row / kernels::kWordBits;
    const auto first = static_cast<size_t>(block * kBlockWords);
    const auto whole = words_.subspan(first, static_cast<size_t>(word) - first);
    const kernels::BitWord part =
        words_[static_cast<size_t>(word)] & kernels::LowBits(row % kernels::kWordBits);
    return counts_[static_cast<size_t>(block)] + kernels::CountBits(whole) +
           std::popcount(part);
  }
  const size_t run = FirstRunAfter(row);
  if (run == counts_.size()) return num_rows_;
  const RowRun found = RunOf(run);
  return counts_[run] - found.num_rows() + std::max<int64_t>(0, row - found.begin);
}

int64_t RowSelection::RowAt(int64_t index) const {
  const auto after = std::ranges::upper_bound(counts_, index) - counts_.begin();
  if (has_bits_) {
    const auto block = static_cast<size_t>(after - 1);
    const auto first = block * static_cast<size_t>(kBlockWords);
    return after * kBlockRows - kBlockRows +
           kernels::FindOne(&words_[first], index - counts_[block]);
  }
  const auto run = static_cast<size_t>(after);
  return RunOf(run).end - (counts_[run] - index);
}

RowRun RowSelection::NextRun(int64_t row, size_t* near) const {
  if (has_bits_) {
    const int64_t begin = kernels::FindBit(words_.data(), row, end_of_bits(), true);
    return {begin, kernels::FindBit(words_.data(), begin, end_of_bits(), false)};
  }
  *near = FirstRunAfter(row, *near);
  if (*near == counts_.size()) return {row, row};
  const RowRun found = RunOf(*near);
  return {std::max(row, found.begin), found.end};
}

void RowSelection::CopyBits(int64_t begin, int64_t end, kernels::BitWord* out) const {
  const int64_t num_words = kernels::NumWords(end - begin);
  if (has_bits_) {
    const int64_t known = std::clamp(end_of_bits(), begin, end);
    kernels::CopyBits(words_.data(), begin, known, out);
    std::fill(out + kernels::NumWords(known - begin), out + num_words, 0);
    return;
  }
  std::fill_n(out, num_words, 0);
  size_t near = 0;
  for (RowRun run = NextRun(begin, &near); run.num_rows() > 0 && run.begin < end;
       run = NextRun(run.end, &near)) {
    kernels::SetBits(run.begin - begin, std::min(run.end, end) - begin, out);
  }
}

}  // namespace torchparquet
