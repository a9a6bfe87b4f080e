#include "reader/windows/window_places.h"

#include <algorithm>
#include <array>
#include <bit>
#include <numeric>
#include <utility>

#include "base/ceil_divide.h"

namespace torchparquet {
namespace {

// An odd number of cache lines of 4 bytes a row. Buckets are written to side by side;
// with powers of two between them, they would share few sets of the cache.
int64_t Stride(int64_t bucket_rows) {
  constexpr int64_t kLineRows = 16;
  return (CeilDivide(bucket_rows, kLineRows) | 1) * kLineRows;
}

}  // namespace

WindowPlaces::WindowPlaces(const Window& window, std::span<const int64_t> chunk_rows,
                           std::vector<BatchRun> runs, int row_bits, ScratchBuffer memory)
    : begin_(window.begin),
      num_delivered_(window.end - window.begin),
      key_(window.key),
      order_(window.order),
      shape_(std::accumulate(chunk_rows.begin(), chunk_rows.end(), int64_t{0})),
      row_bits_(row_bits),
      stride_(Stride(shape_.BucketRows(0))),
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
}

void WindowPlaces::CutPieces() {
  pieces_.clear();  // of one that failed
  for (size_t run = 0; run < runs_.size(); ++run) {
    int64_t position = begin_ + run_begins_[run];
    int64_t first_row = runs_[run].first_row;
    for (int64_t left = runs_[run].num_rows; left > 0;) {
      const int64_t bucket = shape_.BucketAt(position);
      const int64_t in_bucket = position - shape_.BucketBegin(bucket);
      const int64_t next_bucket = std::min(bucket + 1, shape_.num_buckets() - 1);
      std::span<const uint16_t> order = permutation_->SlotsFrom(bucket, in_bucket);
      if (left < std::ssize(order)) order = order.first(static_cast<size_t>(left));
      pieces_.push_back({.run = run,
                         .first_row = first_row,
                         .order = order,
                         .bucket_begin = bucket * stride_,
                         .next_begin = next_bucket * stride_ + in_bucket});
      position += std::ssize(order);
      first_row += std::ssize(order);
      left -= std::ssize(order);
    }
  }
}

void WindowPlaces::LayOut() {
  const int64_t num_entries = shape_.num_table_entries();
  uint16_t* tables = memory_.ReserveItems<uint16_t>(num_entries);
  permutation_.emplace(key_, shape_, std::span(tables, static_cast<size_t>(num_entries)));
  CutPieces();
}

void WindowPlaces::Make() {
  if (has_order()) return;
  laid_out_.Do([this] { LayOut(); });
  const int64_t num_parts = permutation_->num_parts();
  // Acquire: what other threads made is visible.
  int64_t num_made = num_made_.load(std::memory_order_acquire);
  if (num_made == num_parts) return;
  // Relaxed: a part needs what is laid out alone.
  for (int64_t part;
       (part = next_part_.fetch_add(1, std::memory_order_relaxed)) < num_parts;) {
    permutation_->MakePart(part);
    // Release: to those that read the number.
    num_made = num_made_.fetch_add(1, std::memory_order_acq_rel) + 1;
  }
  if (num_made == num_parts) return num_made_.notify_all();
  while ((num_made = num_made_.load(std::memory_order_acquire)) < num_parts) {
    num_made_.wait(num_made, std::memory_order_acquire);
  }
}

int64_t WindowPlaces::StripEnd(int64_t chunk, int64_t row) const {
  const int64_t strip = RowOf(chunk, row) / shape_.strip_rows();
  return (strip + 1) * shape_.strip_rows() - RowOf(chunk, 0);
}

std::optional<kernels::StripOrder> WindowPlaces::StripAt(int64_t chunk, int64_t first_row,
                                                         int64_t num_rows) const {
  const int64_t row = RowOf(chunk, first_row);
  const int64_t strip = row / shape_.strip_rows();
  const bool is_whole = row % shape_.strip_rows() == 0 && num_rows == shape_.strip_rows();
  if (!is_whole || strip >= shape_.num_strips()) return std::nullopt;
  constexpr int64_t kBlockStrips = kernels::PermutationShape::kBlockStrips;
  const kernels::Permutation::StripRuns runs = permutation_->RunsOf(strip);
  return kernels::StripOrder{.order = runs.rows,
                             .block_places = runs.block_places,
                             .turn = runs.turn,
                             .num_runs = shape_.num_buckets(),
                             .run_items = shape_.run_rows(),
                             .block_items = kBlockStrips * shape_.run_rows(),
                             .first = strip % kBlockStrips * shape_.run_rows(),
                             .stride = stride_};
}

void WindowPlaces::Places(int64_t chunk, int64_t first_row, int64_t num_rows,
                          uint32_t* out) const {
  const int64_t first = RowOf(chunk, first_row);
  if (shape_.num_buckets() == 1) {
    std::iota(out, out + num_rows, static_cast<uint32_t>(first));
    return;
  }
  std::array<kernels::Permutation::Slot, 256> slots;
  for (int64_t done = 0; done < num_rows; done += std::ssize(slots)) {
    const int64_t count = std::min(num_rows - done, std::ssize(slots));
    permutation_->SlotsOf(first + done, count, slots.data());
    for (int64_t i = 0; i < count; ++i) {
      const auto& slot = slots[static_cast<size_t>(i)];
      *out++ = static_cast<uint32_t>(slot.bucket * stride_ + slot.index);
    }
  }
}

void WindowPlaces::Rows(size_t run, uint32_t* out) const {
  if (has_order()) {
    std::ranges::copy(OrderOf(run), out);
  } else {
    permutation_->Rows(begin_ + run_begins_[run], runs_[run].num_rows, out);
  }
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
  permutation_->Positions(RowOf(chunk, first_row), num_rows, out);
  for (int64_t i = 0; i < num_rows; ++i) {
    const int64_t position = out[i];
    out[i] = kernels::kNoSlot;
    if (position < begin_ || position >= begin_ + num_delivered_) continue;
    const size_t run = RunAt(position - begin_);
    const int64_t row = runs_[run].first_row + position - begin_ - run_begins_[run];
    out[i] = static_cast<uint32_t>(run << row_bits_) + static_cast<uint32_t>(row);
  }
}

int RowBits(const BatchLayout& layout) {
  return static_cast<int>(
      std::bit_width(static_cast<uint64_t>(layout.capacity_rows - 1)));
}

}  // namespace torchparquet
