#include "kernels/shuffle/sampled_rows.h"

#include <algorithm>
#include <bit>
#include <cstddef>
#include <iterator>
#include <limits>
#include <tuple>

#include "base/errors.h"

namespace torchparquet::kernels {
namespace {

constexpr int64_t kWordRows = 64;

// Finds row groups of rows: a table says where to look, so that few are compared.
class RowGroupTable {
 public:
  explicit RowGroupTable(std::span<const int64_t> first_rows)
      : first_rows_(first_rows), num_rows_(first_rows.back()) {
    const auto num_groups = std::max<uint64_t>(first_rows.size() - 1, 1);
    shift_ =
        static_cast<int>(std::bit_width(static_cast<uint64_t>(num_rows_) / num_groups));
    for (int64_t row = 0; row < num_rows_; row += int64_t{1} << shift_) {
      groups_.push_back(Search(row, 0, first_rows.size() - 1));
    }
    groups_.push_back(first_rows.size() - 1);
  }

  size_t Of(int64_t row) const {
    if (row < 0 || row >= num_rows_) {
      throw InvalidArgument("a sample is of a row that is none");
    }
    const auto part = static_cast<size_t>(row >> shift_);
    const size_t group = groups_[part];
    // Most parts hold the begin of one row group at most.
    if (row < first_rows_[group + 1]) return group;
    return Search(row, group + 1, groups_[part + 1] + 1);
  }

 private:
  // The last row group in the range that begins at the row or before.
  size_t Search(int64_t row, size_t begin, size_t end) const {
    end = std::min(end, first_rows_.size() - 1);
    const auto from = first_rows_.begin();
    const auto next = std::upper_bound(from + static_cast<std::ptrdiff_t>(begin),
                                       from + static_cast<std::ptrdiff_t>(end), row);
    return static_cast<size_t>(next - from) - 1;
  }

  const std::span<const int64_t> first_rows_;
  const int64_t num_rows_;
  int shift_ = 0;
  std::vector<size_t> groups_;  // of the first row of each part of 2^shift_ rows
};

}  // namespace

SampledRows MarkSampledRows(std::span<const int64_t> marked,
                            std::span<const int64_t> samples,
                            std::span<const int64_t> first_rows, uint32_t* places) {
  const RowGroupTable table(first_rows);
  // By row group, the bit of its first row less that row.
  constexpr int64_t kNotMet = std::numeric_limits<int64_t>::min();
  std::vector<int64_t> bit_of(first_rows.size(), kNotMet);
  for (const int64_t row : marked) bit_of[table.Of(row)] = 0;
  SampledRows found;
  int64_t num_words = 0;
  for (size_t group = 0; group + 1 < first_rows.size(); ++group) {
    if (bit_of[group] == kNotMet) continue;
    found.row_groups.push_back(static_cast<int64_t>(group));
    bit_of[group] = num_words * kWordRows - first_rows[group];
    num_words += (first_rows[group + 1] - first_rows[group] + kWordRows - 1) / kWordRows;
  }
  found.words.resize(static_cast<size_t>(num_words));
  for (const int64_t row : marked) {
    const auto bit = static_cast<uint64_t>(row + bit_of[table.Of(row)]);
    found.words[bit / kWordRows] |= uint64_t{1} << bit % kWordRows;
  }
  std::vector<uint32_t> before(found.words.size());  // marked rows before each word
  uint32_t num_marked = 0;
  for (size_t i = 0; i < before.size(); ++i) {
    before[i] = num_marked;
    num_marked += static_cast<uint32_t>(std::popcount(found.words[i]));
  }
  for (const int64_t row : samples) {
    const int64_t to_bit = bit_of[table.Of(row)];
    const auto bit = static_cast<uint64_t>(to_bit == kNotMet ? 0 : row + to_bit);
    const uint64_t mark = uint64_t{1} << bit % kWordRows;
    if (to_bit == kNotMet || (found.words[bit / kWordRows] & mark) == 0) {
      throw InvalidArgument("a sample is of a row that is not marked");
    }
    const auto earlier = std::popcount(found.words[bit / kWordRows] & (mark - 1));
    *places++ = before[bit / kWordRows] + static_cast<uint32_t>(earlier);
  }
  return found;
}

void SortRandomKeys(std::span<const uint64_t> keys, uint32_t* order) {
  struct Entry {
    uint64_t key;
    uint32_t number;
  };
  // Two passes of buckets, whose borders stay in the first cache, from the lower bits on.
  // Then few neighbours have the same bits.
  const int num_bits = std::clamp(static_cast<int>(std::bit_width(keys.size())), 2, 24);
  const int low_bits = num_bits / 2;
  const int high_bits = num_bits - low_bits;
  std::vector<Entry> entries(keys.size());
  std::vector<Entry> sorted(keys.size());
  std::vector<size_t> low(size_t{1} << low_bits);
  std::vector<size_t> high(size_t{1} << high_bits);
  const auto high_of = [=](uint64_t key) { return key >> (64 - high_bits); };
  const auto low_of = [=](uint64_t key) { return key << high_bits >> (64 - low_bits); };
  for (const uint64_t key : keys) {
    ++low[low_of(key)];
    ++high[high_of(key)];
  }
  const auto to_begins = [](std::vector<size_t>* counts) {
    size_t begin = 0;
    for (size_t& count : *counts) {
      const size_t end = begin + count;
      count = begin;
      begin = end;
    }
  };
  to_begins(&low);
  to_begins(&high);
  for (size_t i = 0; i < keys.size(); ++i) {
    entries[low[low_of(keys[i])]++] = {keys[i], static_cast<uint32_t>(i)};
  }
  for (const Entry& entry : entries) sorted[high[high_of(entry.key)]++] = entry;
  const auto bits_of = [=](const Entry& entry) { return entry.key >> (64 - num_bits); };
  constexpr std::ptrdiff_t kFew = 32;
  for (auto begin = sorted.begin(); begin != sorted.end();) {
    auto end = std::next(begin);
    while (end != sorted.end() && bits_of(*end) == bits_of(*begin)) ++end;
    if (end - begin > kFew) {
      std::sort(begin, end, [](const Entry& a, const Entry& b) {
        return std::tie(a.key, a.number) < std::tie(b.key, b.number);
      });
    } else {
      for (auto at = std::next(begin); at != end; ++at) {
        const Entry entry = *at;
        auto to = at;
        for (; to != begin && std::prev(to)->key > entry.key; --to) *to = *std::prev(to);
        *to = entry;
      }
    }
    begin = end;
  }
  for (const Entry& entry : sorted) *order++ = entry.number;
}

}  // namespace torchparquet::kernels
