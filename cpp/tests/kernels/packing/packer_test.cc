#include "kernels/packing/packer.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <numeric>
#include <vector>

#include "caught.h"
#include "draws.h"

namespace torchparquet::kernels {
namespace {

using testing::Draws;
using testing::Throws;
using Strategy = Packing::Strategy;
using Lengths = std::vector<int64_t>;

constexpr Strategy kStrategies[] = {Strategy::kConcat, Strategy::kSplit,
                                    Strategy::kBestFit};

// Of each sequence, its tokens by number. Separators are -1.
using Sequences = std::vector<std::vector<int64_t>>;

void Take(const Packing& packing, Packer& packer, Sequences* sequences) {
  for (int64_t number = 0; number < packer.num_sequences(); ++number) {
    std::vector<int64_t>& tokens = sequences->emplace_back();
    int64_t used = 0;
    for (const PackedPart& part : packer.sequence(number)) {
      CHECK(used % packing.multiple_of == 0);
      used += packing.Padded(part.num_tokens());
      for (int64_t i = 0; i < part.num_values; ++i) tokens.push_back(part.begin + i);
      if (part.has_separator) tokens.push_back(-1);
    }
    CHECK(used <= packing.length);
  }
  packer.Clear();
}

// Adds documents, some at a time.
Sequences Packed(const Packing& packing, const Lengths& lengths, Draws& draws) {
  Packer packer(packing);
  Sequences sequences;
  std::span<const int64_t> rest(lengths);
  while (!rest.empty()) {
    const auto count = static_cast<size_t>(draws.Between(1, std::ssize(rest)));
    packer.Add(rest.first(count));
    rest = rest.subspan(count);
    const int64_t first_open = packer.first_open_value();
    Take(packing, packer, &sequences);
    CHECK(packer.first_open_value() == first_open);
  }
  packer.Finish();
  Take(packing, packer, &sequences);
  return sequences;
}

Lengths RandomLengths(Draws& draws) {
  Lengths lengths(static_cast<size_t>(draws.Between(0, 60)));
  const int64_t longest = draws.OneIn(2) ? 12 : 70;
  for (int64_t& length : lengths) {
    length = draws.OneIn(5) ? 0 : draws.Between(1, longest);
  }
  return lengths;
}

TEST_CASE("each token is in one sequence, which is not longer than others") {
  Draws draws(301);
  for (int trial = 0; trial < 600; ++trial) {
    const int64_t multiple = draws.OneIn(2) ? 1 : draws.Between(2, 5);
    const Packing packing{.length = multiple * draws.Between(1, 20),
                          .strategy = kStrategies[draws.Between(0, 2)],
                          .has_separator = draws.OneIn(2),
                          .window_documents = draws.Between(1, 20),
                          .multiple_of = multiple};
    const Lengths lengths = RandomLengths(draws);
    const Sequences sequences = Packed(packing, lengths, draws);
    CHECK(sequences == Packed(packing, lengths, draws));
    std::vector<int64_t> all;
    int64_t num_separators = 0;
    for (const std::vector<int64_t>& tokens : sequences) {
      CHECK(!tokens.empty());
      CHECK(std::ssize(tokens) <= packing.length);
      for (const int64_t token : tokens) {
        if (token < 0) {
          ++num_separators;
        } else {
          all.push_back(token);
        }
      }
    }
    std::ranges::sort(all);
    std::vector<int64_t> expected(
        static_cast<size_t>(std::reduce(lengths.begin(), lengths.end(), int64_t{0})));
    std::iota(expected.begin(), expected.end(), 0);
    CHECK(all == expected);
    const int64_t num_documents =
        std::ranges::count_if(lengths, [](int64_t length) { return length > 0; });
    CHECK(num_separators == (packing.has_separator ? num_documents : 0));
  }
}

TEST_CASE("sequences that must never change") {
  Draws draws(302);
  const Lengths lengths{3, 0, 4, 2, 9, 1};
  Packing packing{.length = 5};
  CHECK(Packed(packing, lengths, draws) ==
        Sequences{
            {0, 1, 2, 3, 4}, {5, 6, 7, 8, 9}, {10, 11, 12, 13, 14}, {15, 16, 17, 18}});
  packing.strategy = Strategy::kSplit;
  CHECK(Packed(packing, lengths, draws) ==
        Sequences{
            {0, 1, 2}, {3, 4, 5, 6}, {7, 8}, {9, 10, 11, 12, 13}, {14, 15, 16, 17, 18}});
  packing.strategy = Strategy::kBestFit;
  packing.window_documents = 100;
  CHECK(Packed(packing, lengths, draws) ==
        Sequences{
            {0, 1, 2, 7, 8}, {3, 4, 5, 6, 18}, {9, 10, 11, 12, 13}, {14, 15, 16, 17}});
  packing.has_separator = true;
  packing.strategy = Strategy::kConcat;
  CHECK(Packed(packing, {4, 5}, draws) ==
        Sequences{{0, 1, 2, 3, -1}, {4, 5, 6, 7, 8}, {-1}});
}

TEST_CASE("best fit wastes hardly more than first fit over all documents") {
  Draws draws(303);
  Lengths lengths(20'000);
  for (int64_t& length : lengths) {
    length = draws.OneIn(4) ? draws.Between(500, 2048) : draws.Between(1, 500);
  }
  const int64_t num_tokens = std::reduce(lengths.begin(), lengths.end(), int64_t{0});
  const Packing packing{
      .length = 2048, .strategy = Strategy::kBestFit, .window_documents = 2000};
  const auto num_sequences = std::ssize(Packed(packing, lengths, draws));
  // First fit decreasing, offline.
  std::ranges::sort(lengths, std::ranges::greater{});
  Lengths rooms;
  for (const int64_t length : lengths) {
    const auto found =
        std::ranges::find_if(rooms, [&](int64_t room) { return room >= length; });
    if (found == rooms.end()) {
      rooms.push_back(2048 - length);
    } else {
      *found -= length;
    }
  }
  const auto waste = [&](int64_t sequences) {
    return 1 - static_cast<double>(num_tokens) / static_cast<double>(2048 * sequences);
  };
  CHECK(waste(num_sequences) < waste(std::ssize(rooms)) + 0.01);
}

TEST_CASE("documents of a window are few if they are long") {
  Packer packer(
      {.length = 1000, .strategy = Strategy::kBestFit, .window_documents = 100});
  packer.Add(Lengths{3'000'000, 10, 3'000'000});
  CHECK(packer.num_sequences() == 6001);
  CHECK(packer.first_open_value() == 6'000'010);
}

TEST_CASE("sequences and windows without length are refused") {
  CHECK(Throws(ErrorKind::kInvalidArgument, [] { Packer({.length = 0}); }));
  CHECK(Throws(ErrorKind::kInvalidArgument,
               [] { Packer({.length = 1, .window_documents = 0}); }));
}

}  // namespace
}  // namespace torchparquet::kernels
