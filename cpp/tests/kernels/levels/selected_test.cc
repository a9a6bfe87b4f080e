#include "kernels/levels/selected.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <vector>

#include "draws.h"
#include "exact_buffer.h"
#include "kernels/levels/level_reader.h"

namespace torchparquet::kernels {
namespace {

using testing::Draws;
using testing::ExactBuffer;

// Bits one by one, as the kernels should see them.
std::vector<bool> RandomBits(Draws& draws, int64_t num_bits) {
  std::vector<bool> bits;
  const int64_t longest = draws.OneIn(2) ? 3 : 200;
  while (std::ssize(bits) < num_bits) {
    const int64_t count =
        std::min(draws.Between(1, longest), num_bits - std::ssize(bits));
    const bool bit = draws.OneIn(2);
    for (int64_t i = 0; i < count; ++i) bits.push_back(bit);
  }
  return bits;
}

std::vector<BitWord> WordsOf(const std::vector<bool>& bits) {
  std::vector<BitWord> words(static_cast<size_t>(NumWords(std::ssize(bits))));
  for (size_t i = 0; i < bits.size(); ++i) words[i / 64] |= BitWord{bits[i]} << (i % 64);
  return words;
}

TEST_CASE("bits are copied, counted and found from any place to any other") {
  Draws draws(1);
  for (int trial = 0; trial < 300; ++trial) {
    const int64_t num_bits = draws.Between(1, 400);
    const std::vector<bool> bits = RandomBits(draws, num_bits);
    ExactBuffer<BitWord> words(WordsOf(bits));
    const int64_t begin = draws.Between(0, num_bits);
    const int64_t end = draws.Between(begin, num_bits);
    const std::vector<bool> part(bits.begin() + begin, bits.begin() + end);
    ExactBuffer<BitWord> copied(static_cast<size_t>(NumWords(end - begin)));
    CopyBits(words.data(), begin, end, copied.data());
    CHECK(copied.Copy() == WordsOf(part));
    std::vector<int64_t> ones;
    for (int64_t i = begin; i < end; ++i) {
      if (bits[static_cast<size_t>(i)]) ones.push_back(i);
    }
    CHECK(CountOnes(words.data(), begin, end) == std::ssize(ones));
    std::vector<int64_t> found;
    ForOnes(words.data(), begin, end, [&](int64_t one) { found.push_back(one); });
    CHECK(found == ones);
    const int64_t wanted = draws.Between(1, std::ssize(ones) + 1);
    const int64_t expected_end =
        wanted > std::ssize(ones) ? end : ones[static_cast<size_t>(wanted - 1)] + 1;
    CHECK(EndOfOnes(words.data(), begin, end, wanted) == expected_end);

    int64_t num_runs = 0;
    int64_t num_ones = 0;
    for (size_t i = 0; i < part.size(); ++i) {
      if (!part[i]) continue;
      CHECK(FindOne(copied.data(), num_ones) == static_cast<int64_t>(i));
      ++num_ones;
      num_runs += i == 0 || !part[i - 1];
    }
    CHECK(CountBits(copied.span()) == num_ones);
    CHECK(CountRuns(copied.span()) == num_runs);
    for (const bool value : {false, true}) {
      int64_t expected = begin;
      while (expected < end && bits[static_cast<size_t>(expected)] != value) ++expected;
      CHECK(FindBit(words.data(), begin, end, value) == expected);
    }
    std::vector<BitWord> set(static_cast<size_t>(NumWords(num_bits)));
    SetBits(begin, end, set.data());
    std::vector<bool> expected(static_cast<size_t>(num_bits));
    std::fill(expected.begin() + begin, expected.begin() + end, true);
    CHECK(set == WordsOf(expected));
  }
}

TEST_CASE("selected rows of a page with nulls have their values and their validity") {
  Draws draws(2);
  for (int trial = 0; trial < 300; ++trial) {
    const int64_t num_rows = draws.Between(1, 500);
    const std::vector<bool> selected = RandomBits(draws, num_rows);
    const std::vector<bool> valid = RandomBits(draws, num_rows);
    std::vector<bool> expected_values;
    std::vector<uint8_t> expected_valid;
    for (size_t i = 0; i < selected.size(); ++i) {
      if (valid[i]) expected_values.push_back(selected[i]);
      if (selected[i]) expected_valid.push_back(valid[i]);
    }
    ExactBuffer<BitWord> rows(WordsOf(selected));
    ExactBuffer<uint8_t> bytes(std::vector<uint8_t>(valid.begin(), valid.end()));
    const auto num_words = static_cast<size_t>(NumWords(num_rows));
    ExactBuffer<BitWord> values(num_words);
    ExactBuffer<BitWord> levels(num_words + 1);
    const SelectedRows found =
        SelectRows(bytes.span(), rows.data(), values.data(), levels.data() + 1);
    REQUIRE(found.num_rows == std::ssize(expected_valid));
    REQUIRE(found.num_values == std::ssize(expected_values));
    const std::vector<BitWord> words = WordsOf(expected_values);
    CHECK(std::equal(words.begin(), words.end(), values.data()));
    LevelReader reader(AsPackedRun(levels.data() + 1, found.num_rows), 1);
    std::vector<uint8_t> read(expected_valid.size());
    reader.Read(found.num_rows, read.data());
    CHECK(read == expected_valid);
  }
}

}  // namespace
}  // namespace torchparquet::kernels
