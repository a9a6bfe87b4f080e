#include "pages/level_blocks.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <vector>

#include "caught.h"
#include "draws.h"
#include "encoders/level_encoder.h"
#include "encoders/rle_bit_packed_encoder.h"
#include "exact_buffer.h"

namespace torchparquet {
namespace {

using testing::Draws;
using testing::ExactBuffer;
using testing::RleBitPackedEncoder;
using testing::Throws;

using Levels = std::vector<uint8_t>;

// Levels in stretches: of the highest only, of one level, and mixed.
Levels RandomLevels(Draws& draws, int64_t size, int max_level) {
  Levels levels;
  const auto wanted = static_cast<size_t>(size);
  while (levels.size() < wanted) {
    const int64_t length = draws.OneIn(2) ? draws.Between(1, 20) : draws.Between(1, 3000);
    const int64_t shape = draws.Below(3);
    const auto one = static_cast<uint8_t>(draws.Below(max_level + 1));
    for (int64_t i = 0; i < length && levels.size() < wanted; ++i) {
      levels.push_back(shape == 0   ? static_cast<uint8_t>(max_level)
                       : shape == 1 ? one
                                    : static_cast<uint8_t>(draws.Below(max_level + 1)));
    }
  }
  return levels;
}

TEST_CASE("entries of any page, taken in random pieces") {
  Draws draws(220);
  LevelBlocks blocks;  // goes on from page to page
  CHECK(blocks.Peek().size == 0);
  int64_t num_without_levels = 0;
  for (int trial = 0; trial < 400; ++trial) {
    const auto max_repetition = static_cast<int>(draws.Below(4));
    const auto max_definition = static_cast<int>(draws.Below(6));
    const int64_t size = draws.OneIn(5) ? draws.Below(3) : draws.Below(9000);
    CAPTURE(max_repetition);
    CAPTURE(max_definition);
    CAPTURE(size);
    const Levels repetition = RandomLevels(draws, size, max_repetition);
    const Levels definition = RandomLevels(draws, size, max_definition);
    ExactBuffer<uint8_t> repetition_bytes(
        max_repetition == 0 ? Levels()
                            : testing::EncodeLevels(draws, repetition, max_repetition));
    ExactBuffer<uint8_t> definition_bytes(
        max_definition == 0 ? Levels()
                            : testing::EncodeLevels(draws, definition, max_definition));
    blocks.Open({.max_repetition = max_repetition,
                 .max_definition = max_definition,
                 .repetition = repetition_bytes.span(),
                 .definition = definition_bytes.span(),
                 .num_entries = size});
    int64_t num_wrong = 0;
    int64_t position = 0;
    while (true) {
      const LevelBlock block = blocks.Peek();
      if (block.size == 0) break;
      REQUIRE(block.size <= size - position);
      num_wrong += (block.repetition != nullptr) != (max_repetition > 0);
      num_wrong += block.repetition != nullptr &&
                   !std::equal(block.repetition, block.repetition + block.size,
                               repetition.begin() + position);
      if (block.definition != nullptr) {
        num_wrong += !std::equal(block.definition, block.definition + block.size,
                                 definition.begin() + position);
      } else {
        ++num_without_levels;
        num_wrong += std::count(definition.begin() + position,
                                definition.begin() + position + block.size,
                                max_definition) != block.size;
      }
      // Looking again changes nothing.
      num_wrong += blocks.Peek().size != block.size;
      const int64_t taken = draws.OneIn(2) ? block.size : draws.Between(0, block.size);
      blocks.Take(taken);
      position += taken;
    }
    CHECK(num_wrong == 0);
    CHECK(position == size);
  }
  CHECK(num_without_levels > 100);
}

TEST_CASE("a page of values only is one block where no entry goes on with a row") {
  RleBitPackedEncoder encoder(2);
  encoder.AppendRepeated(2, 1'000'000);
  ExactBuffer<uint8_t> bytes(encoder.bytes());
  LevelBlocks blocks;
  blocks.Open(
      {.max_definition = 2, .definition = bytes.span(), .num_entries = 1'000'000});
  CHECK(blocks.Peek().size == 1'000'000);
  CHECK(blocks.Peek().definition == nullptr);
  CHECK(blocks.Peek().NumRows() == 1'000'000);
  CHECK(blocks.Peek().RowBegin(77) == 77);
}

TEST_CASE("fewer levels than entries are an error, of either kind") {
  RleBitPackedEncoder enough(1);
  enough.AppendRepeated(1, 100);
  RleBitPackedEncoder few(1);
  few.AppendRepeated(1, 99);
  for (const bool repetition_is_short : {false, true}) {
    ExactBuffer<uint8_t> repetition(repetition_is_short ? few.bytes() : enough.bytes());
    ExactBuffer<uint8_t> definition(repetition_is_short ? enough.bytes() : few.bytes());
    LevelBlocks blocks;
    blocks.Open({.max_repetition = 1,
                 .max_definition = 1,
                 .repetition = repetition.span(),
                 .definition = definition.span(),
                 .num_entries = 100});
    CHECK(Throws(ErrorKind::kCorruptFile, [&] { blocks.Peek(); }));
  }
  LevelBlocks blocks;
  CHECK(Throws(ErrorKind::kNotSupported,
               [&] { blocks.Open({.max_definition = 300, .num_entries = 1}); }));
}

TEST_CASE("rows of a block") {
  Draws draws(221);
  for (int trial = 0; trial < 300; ++trial) {
    const int max_level = draws.OneIn(2) ? 1 : 3;
    Levels levels(static_cast<size_t>(draws.Below(300)));
    const int64_t one_in = draws.Between(1, 20);
    for (uint8_t& level : levels) {
      level = draws.OneIn(one_in) ? 0 : static_cast<uint8_t>(draws.Between(1, max_level));
    }
    std::vector<int64_t> begins;
    for (size_t i = 0; i < levels.size(); ++i) {
      if (levels[i] == 0) begins.push_back(static_cast<int64_t>(i));
    }
    ExactBuffer<uint8_t> exact(levels);
    const LevelBlock block{exact.data(), nullptr, std::ssize(levels)};
    CHECK(block.NumRows() == std::ssize(begins));
    std::vector<int64_t> found;
    for (int64_t row = 0; row < std::ssize(begins); ++row) {
      found.push_back(block.RowBegin(row));
    }
    CHECK(found == begins);
    found.clear();
    block.ForEachRow([&](int64_t entry) { found.push_back(entry); });
    CHECK(found == begins);
    if (begins.empty()) continue;
    // Of the entries before a row's first, all rows before it.
    const auto row = draws.Below(std::ssize(begins));
    CHECK(block.First(begins[static_cast<size_t>(row)]).NumRows() == row);
  }
}

}  // namespace
}  // namespace torchparquet
