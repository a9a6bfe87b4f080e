#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <memory>
#include <span>
#include <utility>

#include "kernels/levels/selected.h"
#include "kernels/values/select.h"
#include "values/value_reader.h"

namespace torchparquet {

// Reads some values of a page as if it held no others.
template <typename T>
class SelectedReader : public ValueReader<T> {
 public:
  // `bits` has a one for each value to read, and must outlive the reader. A value has
  // `cell_items` items.
  SelectedReader(std::unique_ptr<ValueReader<T>> all,
                 std::span<const kernels::BitWord> bits, int64_t num_values,
                 int64_t cell_items)
      : all_(std::move(all)),
        bits_(bits),
        num_values_(num_values),
        cell_items_(cell_items),
        by_blocks_(cell_items == 1 && !all_->may_refuse() &&
                   kernels::CountRuns(bits) * kMaxBlockDistance > num_values) {}

  void Read(T* out, int64_t num_values) override {
    if (!by_blocks_) {
      ForRuns(num_values, [&](int64_t count) {
        all_->Read(out, count);
        out += count * cell_items_;
      });
      return;
    }
    while (num_values > 0) {
      const int64_t count = Take(num_values);
      std::copy_n(kept_.data() + kept_begin_ - count, count, out);
      out += count;
      num_values -= count;
    }
  }
  void Skip(int64_t num_values) override {
    if (!by_blocks_) {
      return ForRuns(num_values, [&](int64_t count) { all_->Skip(count); });
    }
    while (num_values > 0) num_values -= Take(num_values);
  }

 private:
  static constexpr int64_t kBlockValues = 1024;
  // Where runs begin as closely as this, reading the values between them costs less than
  // the calls that skip them. But none of those may be refused.
  static constexpr int64_t kMaxBlockDistance = 160;

  template <typename Use>
  void ForRuns(int64_t num_values, Use use) {
    while (num_values > 0) {
      const int64_t begin = kernels::FindBit(bits_.data(), position_, num_values_, true);
      if (begin == num_values_) ThrowTooFew();
      if (begin > position_) all_->Skip(begin - position_);
      const int64_t most = std::min(num_values_, begin + num_values);
      position_ = kernels::FindBit(bits_.data(), begin, most, false);
      use(position_ - begin);
      num_values -= position_ - begin;
    }
  }

  // Passes over up to `num_values` values in `kept_`, at least one, and returns how many.
  int64_t Take(int64_t num_values) {
    while (kept_begin_ == kept_end_) {
      const int64_t count = std::min(kBlockValues, num_values_ - position_);
      if (count == 0) ThrowTooFew();
      all_->Read(block_.data(), count);
      kept_begin_ = 0;
      kept_end_ = select_(block_.data(),
                          &bits_[static_cast<size_t>(position_ / kernels::kWordBits)],
                          count, kept_.data());
      position_ += count;
    }
    const int64_t count = std::min(num_values, kept_end_ - kept_begin_);
    kept_begin_ += count;
    return count;
  }

  [[noreturn]] static void ThrowTooFew() {
    throw Error(ErrorKind::kInternal, "more values were asked for than were selected");
  }

  const std::unique_ptr<ValueReader<T>> all_;
  const std::span<const kernels::BitWord> bits_;
  const int64_t num_values_;
  const int64_t cell_items_;
  const bool by_blocks_;
  int64_t position_ = 0;  // of the next value that is not read
  const kernels::SelectFunction<T> select_ = kernels::ChooseSelect<T>();
  using Block = std::array<T, kBlockValues + kernels::kSelectSlackItems<T>>;
  Block block_;
  Block kept_;              // of a block, the selected values
  int64_t kept_begin_ = 0;  // of those that are not taken yet
  int64_t kept_end_ = 0;
};

}  // namespace torchparquet
