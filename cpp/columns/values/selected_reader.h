#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <span>

#include "columns/values/value_reader.h"
#include "kernels/levels/selected.h"
#include "kernels/values/select.h"

namespace torchparquet {

// Reads some of the next values of a reader as if there were no others.
template <typename T>
class SelectedReader : public ValueReader<T> {
 public:
  // `bits` has a one for each of the next `num_values` values of `all` that is to be
  // read. Both must outlive the reader. A value has `cell_items` items.
  SelectedReader(ValueReader<T>* all, std::span<const kernels::BitWord> bits,
                 int64_t num_values, int64_t cell_items)
      : all_(all),
        bits_(bits),
        num_values_(num_values),
        cell_items_(cell_items),
        way_(cell_items == 1 ? Choose() : Way::kRuns) {}

  void Read(T* out, int64_t num_values) override {
    if (num_values == 0) return;
    if (way_ == Way::kPicks) {
      const int64_t begin = position_;
      return all_->PickOnes(out, bits_.data(), begin, TakeOnes(num_values));
    }
    if (way_ == Way::kRuns) {
      int64_t done = 0;
      return ReadParts(done, [&] {
        ForRuns(num_values, [&](int64_t count) {
          all_->Read(out, count);
          out += count * cell_items_;
          done += count;
        });
      });
    }
    while (num_values > 0) {
      const int64_t count = Take(num_values);
      std::copy_n(kept_.data() + kept_begin_ - count, count, out);
      out += count;
      num_values -= count;
    }
  }
  void Skip(int64_t num_values) override {
    if (num_values > 0 && way_ == Way::kPicks) {
      const int64_t begin = position_;
      return all_->Skip(TakeOnes(num_values) - begin);
    }
    if (way_ == Way::kRuns) {
      return ForRuns(num_values, [&](int64_t count) { all_->Skip(count); });
    }
    while (num_values > 0) num_values -= Take(num_values);
  }
  // Passes over what is left of the values.
  void SkipRest() {
    if (position_ < num_values_) all_->Skip(num_values_ - position_);
    position_ = num_values_;
  }

 private:
  static constexpr int64_t kBlockValues = 1024;
  enum class Way { kRuns, kPicks, kBlocks };

  // If runs begin close to each other, the calls that read and skip them cost more
  // than the values. Then values are picked one by one, or all values of a block are
  // read, if none may be refused.
  Way Choose() const {
    const int64_t num_runs = kernels::CountRuns(bits_);
    const int64_t num_ones = kernels::CountBits(bits_);
    constexpr int64_t kMaxRunOfPicks = 16;
    constexpr int64_t kMaxDistanceOfPicks = 6;  // on average, of single values
    if (all_->can_pick() && num_ones < kMaxRunOfPicks * num_runs &&
        num_ones * kMaxDistanceOfPicks < num_values_) {
      return Way::kPicks;
    }
    constexpr int64_t kMaxBlockDistance = 160;
    const bool are_close = num_runs * kMaxBlockDistance > num_values_;
    return are_close && !all_->may_refuse() ? Way::kBlocks : Way::kRuns;
  }

  // Moves past the next selected values, and returns where to.
  int64_t TakeOnes(int64_t num_values) {
    const int64_t end =
        kernels::EndOfOnes(bits_.data(), position_, num_values_, num_values);
    if (kernels::CountOnes(bits_.data(), position_, end) < num_values) ThrowTooFew();
    return position_ = end;
  }

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

  ValueReader<T>* const all_;
  const std::span<const kernels::BitWord> bits_;
  const int64_t num_values_;
  const int64_t cell_items_;
  const Way way_;
  int64_t position_ = 0;  // of the next value that is not read
  const kernels::SelectFunction<T> select_ = kernels::ChooseSelect<T>();
  using Block = std::array<T, kBlockValues + kernels::kSelectSlackItems<T>>;
  Block block_;
  Block kept_;              // of a block, the selected values
  int64_t kept_begin_ = 0;  // of those that are not taken yet
  int64_t kept_end_ = 0;
};

}  // namespace torchparquet
