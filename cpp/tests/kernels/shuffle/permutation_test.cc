#include "kernels/shuffle/permutation.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <numeric>
#include <utility>
#include <vector>

#include "caught.h"
#include "draws.h"
#include "recipes/made_permutation.h"

namespace torchparquet::kernels {
namespace {

using testing::Draws;
using testing::Throws;
using Made = testing::MadePermutation;

using Numbers = std::vector<uint64_t>;

// The definition, step by step, for all rows.
class Definition {
 public:
  Definition(uint64_t key, uint64_t n) : key_(key), n_(n), positions_(n) {
    uint64_t bits = 0;
    while (uint64_t{1} << bits < n) ++bits;
    if (bits > 13) {
      const uint64_t most = std::max<uint64_t>(9, bits > 16 ? bits - 16 : 0);
      buckets_ = uint64_t{1} << std::min(bits - 13, most);
    }
    strip_ = std::min<uint64_t>(std::max<uint64_t>(8 * buckets_, 2048), 65536);
    run_ = strip_ / buckets_;
    strips_ = buckets_ == 1 ? 0 : n / strip_;
    // Each bucket's rows, strip by strip.
    filled_.assign(buckets_, Numbers(strips_ * run_));
    FillStrips();
    FillTail();
    PermuteBuckets();
  }

  const std::vector<uint32_t>& positions() const { return positions_; }

 private:
  // By bucket, where the run of each strip stands: strips in blocks of eight, whose order
  // is the bucket's own.
  std::vector<Numbers> RunPlaces() const {
    std::vector<Numbers> run_places;
    for (uint64_t b = 0; b < buckets_; ++b) {
      Numbers blocks = Table(128 + b, strips_ / 8);
      if (strips_ % 8 > 0) blocks.push_back(strips_ / 8);
      Numbers& places = run_places.emplace_back(strips_);
      uint64_t place = 0;
      for (const uint64_t block : blocks) {
        for (uint64_t s = 8 * block; s < std::min(strips_, 8 * block + 8); ++s) {
          places[s] = place++;
        }
      }
    }
    return run_places;
  }

  void FillStrips() {
    if (strips_ == 0) return;
    std::vector<Numbers> tables;
    for (uint64_t i = 0; i < Some((strips_ + 3) / 4, 32); ++i) {
      tables.push_back(Table(64 + i, strip_));
    }
    const std::vector<Numbers> run_places = RunPlaces();
    for (uint64_t s = 0; s < strips_; ++s) {
      const Numbers& table = tables[Word(1, 2 * s) % tables.size()];
      const uint64_t turn = Word(1, 2 * s + 1) % buckets_;
      for (uint64_t b = 0; b < buckets_; ++b) {
        for (uint64_t i = 0; i < run_; ++i) {
          filled_[b][run_places[b][s] * run_ + i] =
              s * strip_ + table[(b ^ turn) * run_ + i];
        }
      }
    }
  }

  // Deals the rows after the last strip to the buckets in turn.
  void FillTail() {
    const uint64_t tail = n_ - strips_ * strip_;
    const Numbers table = Table(3, tail);
    for (uint64_t i = 0; i < tail; ++i) {
      const uint64_t row = buckets_ == 1 ? i : table[i];
      filled_[i % buckets_].push_back(strips_ * strip_ + row);
    }
  }

  void PermuteBuckets() {
    std::vector<Numbers> tables;
    for (uint64_t i = 0; i < Some(buckets_, 16); ++i) {
      tables.push_back(Table(16 + i, n_ / buckets_));
    }
    uint64_t position = 0;
    for (uint64_t b = 0; b < buckets_; ++b) {
      const uint64_t size = filled_[b].size();
      Numbers table = tables[b % tables.size()];
      if (size > table.size()) table.push_back(table.size());
      const uint64_t first = Word(2, b) * size >> 32;
      for (uint64_t p = 0; p < size; ++p) {
        positions_[filled_[b][table[(p + first) % size]]] =
            static_cast<uint32_t>(position++);
      }
    }
  }

  static uint64_t Mix(uint64_t z) {
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9;
    z = (z ^ (z >> 27)) * 0x94D049BB133111EB;
    return z ^ (z >> 31);
  }
  static uint64_t Some(uint64_t number, uint64_t most) {
    uint64_t tables = 1;
    while (2 * tables <= number && 2 * tables <= most) tables *= 2;
    return tables;
  }
  uint64_t Word(uint64_t stream, uint64_t number) const {
    constexpr uint64_t kGolden = 0x9E3779B97F4A7C15;
    return Mix(Mix(key_ + stream * kGolden) + (number + 1) * kGolden) >> 32;
  }
  Numbers Table(uint64_t stream, uint64_t size) const {
    Numbers table(size);
    std::iota(table.begin(), table.end(), uint64_t{0});
    for (uint64_t i = 0; i < size; ++i) {
      std::swap(table[i], table[Word(stream, i) * (i + 1) >> 32]);
    }
    return table;
  }

  const uint64_t key_;
  const uint64_t n_;
  uint64_t buckets_ = 1;
  uint64_t strip_ = 0;  // rows of a strip
  uint64_t run_ = 0;    // rows of a strip in each bucket
  uint64_t strips_ = 0;
  std::vector<Numbers> filled_;
  std::vector<uint32_t> positions_;
};

std::vector<uint32_t> Inverse(const std::vector<uint32_t>& numbers) {
  std::vector<uint32_t> inverse(numbers.size(), 0xFFFFFFFF);
  for (size_t i = 0; i < numbers.size(); ++i) {
    inverse.at(numbers[i]) = static_cast<uint32_t>(i);
  }
  return inverse;
}

TEST_CASE("positions that must never change") {
  using Values = std::vector<uint32_t>;
  CHECK(Made(0, 10).Positions(0, 10) == Values{1, 0, 6, 2, 9, 5, 8, 4, 3, 7});
  CHECK(Made(0x0123456789ABCDEF, 1000).Positions(0, 8) ==
        Values{515, 660, 154, 174, 559, 169, 474, 444});
  CHECK(Made(7, 20'000).Positions(0, 8) ==
        Values{12936, 16709, 10156, 8260, 16781, 13745, 13224, 15418});
  CHECK(Made(7, 20'000).Positions(19'995, 5) == Values{1105, 13409, 14768, 3795, 9590});
  CHECK(Made(42, 2'000'000).Positions(0, 8) ==
        Values{558072, 1882870, 617490, 46710, 135823, 1910843, 1957129, 1535989});
  CHECK(Made(42, 2'000'000).Positions(1'999'996, 4) ==
        Values{1872625, 1283405, 645793, 421892});
  const int64_t most = PermutationShape::kMostRows;
  const Made all(0xFFFFFFFFFFFFFFFF, most);
  CHECK(all.Positions(0, 8) == Values{662258731, 1001920797, 1989977560, 218672568,
                                      2129342585, 1283665404, 210374540, 1614414809});
  CHECK(all.Positions(most - 1, 1) == Values{1061454497});
}

TEST_CASE("every row has a position of its own, by the definition, and back") {
  Draws draws(201);
  std::vector<int64_t> sizes{1,      2,      3,       7,         64,       1000,   8191,
                             8192,   8193,   10'240,  16'383,    16'384,   16'385, 65'536,
                             65'537, 70'001, 131'072, 1'000'003, 2'097'153};
  for (int i = 0; i < 40; ++i) sizes.push_back(draws.Between(1, 60'000));
  for (const int64_t n : sizes) {
    CAPTURE(n);
    const uint64_t key = draws.Bits();
    const Made made(key, n);
    REQUIRE(made.shape.num_rows() == n);
    CHECK(2 * made.shape.num_table_entries() <= 6 * n + 2);
    const std::vector<uint32_t> positions = made.Positions(0, n);
    CHECK(positions == Definition(key, static_cast<uint64_t>(n)).positions());
    CHECK(made.Rows(0, n) == Inverse(positions));
  }
}

TEST_CASE("any block is what the whole has there, also of windows beyond memory") {
  Draws draws(202);
  for (int trial = 0; trial < 120; ++trial) {
    const int64_t n = draws.OneIn(2)   ? draws.Between(1, 20'000)
                      : draws.OneIn(3) ? draws.Between(1, PermutationShape::kMostRows)
                                       : draws.Between(60'000, 3'000'000);
    const Made made(draws.Bits(), n);
    CAPTURE(n);
    CHECK(2 * made.shape.num_table_entries() <= 6 * n + 2);
    const int64_t count = std::min(n, draws.Between(1, 5000));
    const int64_t first = draws.Between(0, n - count);
    const std::vector<uint32_t> positions = made.Positions(first, count);
    const std::vector<uint32_t> rows = made.Rows(first, count);
    bool is_inverse = true;
    for (int64_t i = 0; i < count; ++i) {
      const auto at = static_cast<size_t>(i);
      is_inverse &= made.Rows(positions[at], 1)[0] == static_cast<uint32_t>(first + i);
      is_inverse &= made.Positions(rows[at], 1)[0] == static_cast<uint32_t>(first + i);
    }
    CHECK(is_inverse);
  }
}

TEST_CASE("buckets, strips and runs are where the positions are") {
  Draws draws(208);
  for (const int64_t n : {9000, 50'000, 300'001, 2'100'000}) {
    CAPTURE(n);
    const Made made(draws.Bits(), n);
    const PermutationShape& shape = made.shape;
    const std::vector<uint32_t> positions = made.Positions(0, n);
    std::vector<Permutation::Slot> slots(static_cast<size_t>(n));
    made.permutation.SlotsOf(0, n, slots.data());
    std::vector<std::vector<uint16_t>> slots_at;
    for (int64_t bucket = 0; bucket < shape.num_buckets(); ++bucket) {
      CHECK(shape.BucketBegin(bucket + 1) ==
            shape.BucketBegin(bucket) + shape.BucketRows(bucket));
      std::vector<uint16_t>& of_bucket = slots_at.emplace_back();
      while (std::ssize(of_bucket) < shape.BucketRows(bucket)) {
        const auto some = made.permutation.SlotsFrom(bucket, std::ssize(of_bucket));
        REQUIRE(!some.empty());
        of_bucket.insert(of_bucket.end(), some.begin(), some.end());
      }
      CHECK(std::ssize(of_bucket) == shape.BucketRows(bucket));
    }
    CHECK(shape.BucketBegin(shape.num_buckets()) == n);
    bool is_right = true;
    for (size_t row = 0; row < slots.size(); ++row) {
      const int64_t bucket = shape.BucketAt(positions[row]);
      const int64_t in_bucket = positions[row] - shape.BucketBegin(bucket);
      is_right &= slots[row].bucket == bucket;
      is_right &= slots_at[static_cast<size_t>(bucket)][static_cast<size_t>(in_bucket)] ==
                  slots[row].index;
    }
    CHECK(is_right);
    is_right = true;
    for (int64_t strip = 0; strip < shape.num_strips(); ++strip) {
      const Permutation::StripRuns runs = made.permutation.RunsOf(strip);
      for (int64_t place = 0; place < shape.strip_rows(); ++place) {
        const int64_t row = strip * shape.strip_rows() + runs.rows[place];
        const Permutation::Slot& slot = slots[static_cast<size_t>(row)];
        is_right &= slot.bucket == ((place / shape.run_rows()) ^ runs.turn);
        const int64_t run = runs.block_places[slot.bucket] * 8 + strip % 8;
        is_right &= slot.index == run * shape.run_rows() + place % shape.run_rows();
      }
    }
    CHECK(is_right);
  }
}

// Over many keys: how far the counts of a row's positions, cut to parts, are from equal.
// As a normal deviate, so that 4.5 is one in 300,000.
double DeviateOfPositions(int64_t n, int64_t row, int64_t num_parts, int num_keys) {
  std::vector<int64_t> counts(static_cast<size_t>(num_parts));
  for (int key = 0; key < num_keys; ++key) {
    const int64_t position =
        Made(static_cast<uint64_t>(key) * 77, n).Positions(row, 1)[0];
    ++counts[static_cast<size_t>(position * num_parts / n)];
  }
  const double expected = static_cast<double>(num_keys) / static_cast<double>(num_parts);
  double chi_square = 0;
  for (const int64_t count : counts) {
    chi_square += (static_cast<double>(count) - expected) *
                  (static_cast<double>(count) - expected) / expected;
  }
  const auto freedom = static_cast<double>(num_parts - 1);
  return (chi_square - freedom) / std::sqrt(2 * freedom);
}

TEST_CASE("each position is as likely as another, for first, middle and last rows") {
  for (const int64_t row : {0, 1, 17, 49}) {
    CHECK(std::abs(DeviateOfPositions(50, row, 50, 20'000)) < 4.5);
  }
  for (const int64_t row : {0, 2048, 9000, 19'999}) {
    CHECK(std::abs(DeviateOfPositions(20'000, row, 40, 4000)) < 4.5);
  }
}

TEST_CASE("every part of the order draws on all rows alike") {
  const int64_t n = 500'000;
  const Made made(99, n);
  const std::vector<uint32_t> rows = made.Rows(0, n);
  // Of a batch of 256 rows, how many come from each eighth of the window.
  double chi_square = 0;
  int64_t num_batches = 0;
  for (int64_t begin = 0; begin + 256 <= n; begin += 256) {
    std::vector<int> counts(8);
    for (int64_t i = begin; i < begin + 256; ++i) {
      ++counts[static_cast<size_t>(rows[static_cast<size_t>(i)] * int64_t{8} / n)];
    }
    for (const int count : counts) chi_square += (count - 32) * (count - 32) / 32.0;
    ++num_batches;
  }
  // Expected: 7 for each batch where rows are drawn at random, less where more evenly.
  const double mean = chi_square / static_cast<double>(num_batches);
  CHECK(mean > 5);
  CHECK(mean < 7.5);
  // Neighbours in the order are none in the window: of the distances between them the
  // mean is a third of it.
  double distance = 0;
  for (size_t i = 1; i < rows.size(); ++i) {
    distance += std::abs(static_cast<double>(rows[i]) - static_cast<double>(rows[i - 1]));
  }
  distance /= static_cast<double>(n) * static_cast<double>(n);
  CHECK(std::abs(distance - 1.0 / 3) < 0.005);
}

TEST_CASE("which strip a row is from says nothing of the next one") {
  for (const int64_t n : {20'000, 65'536, 131'072, 1'000'000}) {
    CAPTURE(n);
    const Made made(5, n);
    const std::vector<uint32_t> rows = made.Rows(0, n);
    const auto num_strips = static_cast<size_t>(n / 2048);
    std::vector<double> counts(num_strips * num_strips);
    double total = 0;
    for (size_t i = 1; i < rows.size(); ++i) {
      const size_t one = rows[i - 1] / 2048;
      const size_t next = rows[i] / 2048;
      if (one >= num_strips || next >= num_strips) continue;
      ++counts[one * num_strips + next];
      ++total;
    }
    const double expected = total / static_cast<double>(counts.size());
    double chi_square = 0;
    for (const double count : counts) {
      chi_square += (count - expected) * (count - expected) / expected;
    }
    const auto freedom = static_cast<double>(counts.size() - 1);
    CHECK((chi_square - freedom) / std::sqrt(2 * freedom) < 6);
  }
}

TEST_CASE("what cannot be permuted is refused") {
  CHECK(Throws(ErrorKind::kInvalidArgument, [] { PermutationShape(0); }));
  CHECK(Throws(ErrorKind::kInvalidArgument,
               [] { PermutationShape(PermutationShape::kMostRows + 1); }));
}

}  // namespace
}  // namespace torchparquet::kernels
