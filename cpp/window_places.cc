#include "window_places.h"

#include <algorithm>
#include <utility>

namespace torchparquet {
namespace {

int64_t CeilDivide(int64_t value, int64_t divisor) {
  return (value + divisor - 1) / divisor;
}

int64_t Sum(std::span<const int64_t> values) {
  int64_t sum = 0;
  for (const int64_t value : values) sum += value;
  return sum;
}

}  // namespace

WindowPlaces::WindowPlaces(const Window& window, std::span<const int64_t> chunk_rows,
                           std::vector<BatchRun> runs, int row_bits, ScratchBuffer moves)
    : begin_(window.begin),
      end_(window.end),
      permutation_(window.key, Sum(chunk_rows)),
      row_bits_(row_bits),
      runs_(std::move(runs)),
      num_ranges_(CeilDivide(window.end - window.begin, kRangeRows)),
      moves_(std::move(moves)) {
  int64_t delivered = 0;
  for (const BatchRun& run : runs_) {
    run_begins_.push_back(delivered);
    delivered += run.num_rows;
  }
  int64_t row = 0;
  for (const int64_t num_rows : chunk_rows) {
    chunk_begins_.push_back(row);
    first_strip_.push_back(std::ssize(strip_begins_));
    const int64_t end = row + num_rows;
    for (; row < end; row = std::min(end, row + kStripRows)) strip_begins_.push_back(row);
  }
  const int64_t num_rows = row;
  int64_t strip = 0;
  for (row = 0; row < num_rows; row += int64_t{1} << kBlockBits) {
    while (strip + 1 < std::ssize(strip_begins_) &&
           strip_begins_[static_cast<size_t>(strip + 1)] <= row) {
      ++strip;
    }
    block_strip_.push_back(static_cast<uint32_t>(strip));
  }
  strip_begins_.push_back(num_rows);
  moves_.ReserveItems<kernels::Move>(end_ - begin_);
  move_begins_.resize(static_cast<size_t>(num_ranges_ * (num_strips() + 1)));
}

void WindowPlaces::Make(DecodeScratch* scratch) {
  if (num_made_.load(std::memory_order_acquire) == num_ranges_) return;
  // All that may fail comes before a range is claimed, for which others would wait.
  scratch->rows.ReserveItems<uint32_t>(2 * kRangeRows);
  std::vector<uint32_t> next(static_cast<size_t>(num_strips()));
  while (true) {
    const int64_t range = next_range_.fetch_add(1, std::memory_order_relaxed);
    if (range >= num_ranges_) break;
    MakeRange(range, scratch->rows.data(), &next);
    // Release: whoever sees the last range counted sees the moves of all.
    if (num_made_.fetch_add(1, std::memory_order_acq_rel) + 1 == num_ranges_) {
      num_made_.notify_all();
    }
  }
  int64_t num_made = num_made_.load(std::memory_order_acquire);
  while (num_made != num_ranges_) {
    num_made_.wait(num_made, std::memory_order_acquire);
    num_made = num_made_.load(std::memory_order_acquire);
  }
}

uint32_t WindowPlaces::StripOf(uint32_t row) const {
  uint32_t strip = block_strip_[row >> kBlockBits];
  while (row >= strip_begins_[strip + 1]) ++strip;
  return strip;
}

size_t WindowPlaces::RunAt(int64_t delivered_row) const {
  const auto next =
      std::upper_bound(run_begins_.begin(), run_begins_.end(), delivered_row);
  return static_cast<size_t>(next - run_begins_.begin()) - 1;
}

// Rows by position, counted and then sorted by strip.
void WindowPlaces::MakeRange(int64_t range, uint8_t* room, std::vector<uint32_t>* next) {
  const int64_t first = range * kRangeRows;  // delivered row
  const int64_t count = std::min(kRangeRows, end_ - begin_ - first);
  auto* rows = reinterpret_cast<uint32_t*>(room);  // as reserved
  uint32_t* strips = rows + kRangeRows;
  permutation_.Rows(begin_ + first, count, rows);
  uint32_t* begins = move_begins_.data() + range * (num_strips() + 1);
  for (int64_t i = 0; i < count; ++i) {
    strips[i] = StripOf(rows[i]);
    ++begins[strips[i] + 1];
  }
  for (int64_t strip = 1; strip <= num_strips(); ++strip) {
    begins[strip] += begins[strip - 1];
  }
  std::copy_n(begins, num_strips(), next->begin());
  // As ReserveItems has made it; other ranges' moves are other threads'.
  auto* moves = reinterpret_cast<kernels::Move*>(moves_.data()) + first;
  size_t run = RunAt(first);
  for (int64_t i = 0; i < count; ++run) {
    const auto base = static_cast<uint32_t>(run << row_bits_);
    const auto begin = static_cast<uint32_t>(first + i - run_begins_[run]);
    const int64_t end = std::min(count, run_begins_[run] + runs_[run].num_rows - first);
    auto slot = static_cast<uint32_t>(base + runs_[run].first_row + begin);
    for (; i < end; ++i) {
      const uint32_t strip = strips[i];
      const auto source = static_cast<uint32_t>(rows[i] - strip_begins_[strip]);
      moves[(*next)[strip]++] = {.source = source, .slot = slot++};
    }
  }
}

std::span<const kernels::Move> WindowPlaces::MovesOf(int64_t range, int64_t strip) const {
  const uint32_t* begins = move_begins_.data() + range * (num_strips() + 1) + strip;
  const auto* moves =
      reinterpret_cast<const kernels::Move*>(moves_.data()) + range * kRangeRows;
  return {moves + begins[0], moves + begins[1]};
}

WindowPlaces::ChunkRow WindowPlaces::ChunkOf(uint32_t row) const {
  const auto next = std::upper_bound(chunk_begins_.begin(), chunk_begins_.end(), row);
  const auto chunk = static_cast<size_t>(next - chunk_begins_.begin()) - 1;
  return {chunk, row - static_cast<size_t>(chunk_begins_[chunk])};
}

void WindowPlaces::Slots(int64_t chunk, int64_t first_row, int64_t num_rows,
                         uint32_t* out) const {
  const int64_t first = chunk_begins_[static_cast<size_t>(chunk)] + first_row;
  permutation_.Positions(first, num_rows, out);
  for (int64_t i = 0; i < num_rows; ++i) {
    const int64_t position = out[i];
    out[i] = kernels::kNoSlot;
    if (position < begin_ || position >= end_) continue;
    const size_t run = RunAt(position - begin_);
    const int64_t row = runs_[run].first_row + position - begin_ - run_begins_[run];
    out[i] = static_cast<uint32_t>(run << row_bits_) + static_cast<uint32_t>(row);
  }
}

}  // namespace torchparquet
