#include "window_places.h"

#include <algorithm>
#include <bit>
#include <utility>

#include "ceil_divide.h"

namespace torchparquet {
namespace {

int64_t Sum(std::span<const int64_t> values) {
  int64_t sum = 0;
  for (const int64_t value : values) sum += value;
  return sum;
}

// So many rows of a bucket that all buckets are written to side by side, and so few that
// one stays in the cache, and its places in 16 bits.
int BucketBits(int64_t num_delivered) {
  constexpr int kMinBits = 12;
  constexpr int kMaxBits = 16;
  constexpr int kBucketsBits = 8;
  const int bits =
      static_cast<int>(std::bit_width(static_cast<uint64_t>(num_delivered - 1)));
  return std::clamp(bits - kBucketsBits, kMinBits, kMaxBits);
}

int64_t RangeRows(int64_t num_rows) {
  constexpr int64_t kMinRows = int64_t{1} << 16;
  constexpr int64_t kMaxRanges = 64;
  return std::max(kMinRows, CeilDivide(num_rows, kMaxRanges));
}

}  // namespace

template <typename DoRange>
void WindowPlaces::Stage::Run(int64_t num_ranges, DoRange do_range) {
  while (true) {
    const int64_t range = next_.fetch_add(1, std::memory_order_relaxed);
    if (range >= num_ranges) break;
    do_range(range);
    // Release: whoever sees the last range counted sees what was done of all.
    if (num_done_.fetch_add(1, std::memory_order_acq_rel) + 1 == num_ranges) {
      num_done_.notify_all();
    }
  }
  int64_t num_done = num_done_.load(std::memory_order_acquire);
  while (num_done != num_ranges) {
    num_done_.wait(num_done, std::memory_order_acquire);
    num_done = num_done_.load(std::memory_order_acquire);
  }
}

WindowPlaces::WindowPlaces(const Window& window, std::span<const int64_t> chunk_rows,
                           std::vector<BatchRun> runs, int row_bits, ScratchBuffer memory)
    : begin_(window.begin),
      num_delivered_(window.end - window.begin),
      num_rows_(Sum(chunk_rows)),
      permutation_(window.key, num_rows_),
      row_bits_(row_bits),
      bucket_bits_(BucketBits(num_delivered_)),
      num_buckets_(CeilDivide(num_delivered_, int64_t{1} << bucket_bits_)),
      range_rows_(RangeRows(num_rows_)),
      num_ranges_(CeilDivide(num_rows_, range_rows_)),
      runs_(std::move(runs)),
      memory_(std::move(memory)) {
  int64_t delivered = 0;
  for (const BatchRun& run : runs_) {
    run_begins_.push_back(delivered);
    delivered += run.num_rows;
  }
  int64_t row = 0;
  for (const int64_t num_rows : chunk_rows) {
    chunk_begins_.push_back(row);
    row += num_rows;
  }
  CutPieces();
  memory_.ReserveItems<uint8_t>(num_rows_ * kRowBytes);
  counts_.resize(static_cast<size_t>(num_ranges_ * num_buckets_));
}

void WindowPlaces::CutPieces() {
  for (size_t run = 0; run < runs_.size(); ++run) {
    int64_t begin = run_begins_[run];
    int64_t first_row = runs_[run].first_row;
    for (int64_t left = runs_[run].num_rows; left > 0;) {
      const int64_t bucket = begin >> bucket_bits_;
      const int64_t num_rows = std::min(left, ((bucket + 1) << bucket_bits_) - begin);
      const int64_t next_bucket = std::min(bucket + 1, num_buckets_ - 1);
      const int64_t next_begin = std::min(
          BeginOf(next_bucket) + begin - (bucket << bucket_bits_), BeginOf(num_buckets_));
      pieces_.push_back({run, first_row, num_rows, BeginOf(bucket), next_begin, begin});
      begin += num_rows;
      first_row += num_rows;
      left -= num_rows;
    }
  }
}

void WindowPlaces::Make(DecodeScratch* scratch) {
  // All that may fail comes before a range is claimed, for which others would wait.
  uint32_t* next = scratch->rows.ReserveItems<uint32_t>(num_buckets_);
  counting_.Run(num_ranges_, [&](int64_t range) { CountRange(range); });
  placing_.Run(num_ranges_, [&](int64_t range) { PlaceRange(range, next); });
}

std::span<uint32_t> WindowPlaces::PlacesOfRange(int64_t range) const {
  const int64_t first = range * range_rows_;
  return {places() + first,
          static_cast<size_t>(std::min(range_rows_, num_rows_ - first))};
}

// Leaves which of the delivered rows each is in the place of its place.
void WindowPlaces::CountRange(int64_t range) {
  const std::span<uint32_t> rows = PlacesOfRange(range);
  permutation_.Positions(range * range_rows_, std::ssize(rows), rows.data());
  const auto begin = static_cast<uint32_t>(begin_);
  const auto num_delivered = static_cast<uint32_t>(num_delivered_);
  uint32_t* counts = counts_.data() + range * num_buckets_;
  for (uint32_t& row : rows) {
    // Below the first wraps around, and is none either.
    row -= begin;
    if (row < num_delivered) ++counts[row >> bucket_bits_];
  }
}

// With all ranges a bucket is full, so where each begins is known before.
void WindowPlaces::PlaceRange(int64_t range, uint32_t* next) {
  for (int64_t bucket = 0; bucket < num_buckets_; ++bucket) {
    next[bucket] = static_cast<uint32_t>(BeginOf(bucket));
    for (int64_t before = 0; before < range; ++before) {
      next[bucket] += counts_[static_cast<size_t>(before * num_buckets_ + bucket)];
    }
  }
  const auto num_delivered = static_cast<uint32_t>(num_delivered_);
  // One for each chunk, so that no two threads write to it.
  const auto nowhere = static_cast<uint32_t>(BeginOf(num_buckets_));
  auto number = static_cast<uint32_t>(range * range_rows_);
  uint16_t* out = order();
  for (uint32_t& row : PlacesOfRange(range)) {
    const uint32_t delivered = row;
    const uint32_t number_of_row = number++;
    if (delivered >= num_delivered) {
      row = nowhere + static_cast<uint32_t>(ChunkOf(number_of_row).chunk);
      continue;
    }
    const uint32_t bucket = delivered >> bucket_bits_;
    row = next[bucket]++;
    out[delivered] = static_cast<uint16_t>(row - BeginOf(bucket));
  }
}

std::span<const uint32_t> WindowPlaces::Places(int64_t chunk, int64_t first_row,
                                               int64_t num_rows) const {
  const int64_t first = chunk_begins_[static_cast<size_t>(chunk)] + first_row;
  return {places() + first, static_cast<size_t>(num_rows)};
}

std::span<const uint16_t> WindowPlaces::OrderOf(const Piece& piece) const {
  return {order() + piece.begin, static_cast<size_t>(piece.num_rows)};
}

size_t WindowPlaces::RunAt(int64_t delivered_row) const {
  const auto next =
      std::upper_bound(run_begins_.begin(), run_begins_.end(), delivered_row);
  return static_cast<size_t>(next - run_begins_.begin()) - 1;
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
    if (position < begin_ || position >= begin_ + num_delivered_) continue;
    const size_t run = RunAt(position - begin_);
    const int64_t row = runs_[run].first_row + position - begin_ - run_begins_[run];
    out[i] = static_cast<uint32_t>(run << row_bits_) + static_cast<uint32_t>(row);
  }
}

}  // namespace torchparquet
