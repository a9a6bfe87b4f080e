#include "reader/plan/chunk_cursor.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <barrier>
#include <limits>
#include <memory>
#include <thread>
#include <vector>

#include "caught.h"

namespace torchparquet {
namespace {

using testing::Throws;

std::vector<int64_t> ClaimAll(ChunkCursor& cursor) {
  std::vector<int64_t> positions;
  while (const auto position = cursor.Claim()) positions.push_back(*position);
  return positions;
}

std::vector<int64_t> PositionsOf(int64_t num_positions, int64_t rank,
                                 int64_t world_size) {
  std::vector<int64_t> positions;
  for (int64_t position = 0; position < num_positions; ++position) {
    if (position % world_size == rank) positions.push_back(position);
  }
  return positions;
}

TEST_CASE("the positions of a rank are those of its remainder, ascending") {
  for (int64_t num_positions = 0; num_positions <= 40; ++num_positions) {
    for (int64_t world_size = 1; world_size <= 12; ++world_size) {
      for (int64_t rank = 0; rank < world_size; ++rank) {
        ChunkCursor cursor(num_positions, rank, world_size);
        CHECK(ClaimAll(cursor) == PositionsOf(num_positions, rank, world_size));
        CHECK_FALSE(cursor.Claim());
      }
    }
  }
}

TEST_CASE("8 ranks x 4 workers x 100 positions: the first share has 0, 32, 64, 96") {
  ChunkCursor cursor(100, 0, 32);
  CHECK(ClaimAll(cursor) == std::vector<int64_t>{0, 32, 64, 96});
}

TEST_CASE("the greatest counts do not overflow") {
  constexpr int64_t kMost = std::numeric_limits<int64_t>::max();
  ChunkCursor last(kMost, kMost - 1, kMost);
  CHECK(ClaimAll(last) == std::vector<int64_t>{kMost - 1});
  ChunkCursor none(5, kMost - 1, kMost);
  CHECK_FALSE(none.Claim());
}

TEST_CASE("many threads claim each position once, each thread ascending") {
  constexpr int64_t kNumPositions = 60'000;
  for (const int64_t num_threads : {2, 4, 8}) {
    for (const int64_t world_size : {1, 3}) {
      ChunkCursor cursor(kNumPositions, world_size - 1, world_size);
      std::vector<std::vector<int64_t>> claims(static_cast<size_t>(num_threads));
      std::barrier start(num_threads);
      {
        std::vector<std::jthread> threads;
        for (std::vector<int64_t>& own : claims) {
          threads.emplace_back([&] {
            start.arrive_and_wait();
            own = ClaimAll(cursor);
          });
        }
      }
      std::vector<int64_t> all;
      for (const std::vector<int64_t>& own : claims) {
        CHECK(std::is_sorted(own.begin(), own.end()));
        all.insert(all.end(), own.begin(), own.end());
      }
      std::sort(all.begin(), all.end());
      CHECK(all == PositionsOf(kNumPositions, world_size - 1, world_size));
    }
  }
}

TEST_CASE("claims are handed out in the order in which they were added, each once") {
  const auto claims = std::make_shared<Claims>();
  ChunkCursor cursor(claims);
  CHECK_FALSE(cursor.Claim());
  for (const int64_t position : {5, 2, 9}) claims->Add(position);
  ChunkCursor other(claims);
  CHECK(ClaimAll(cursor) == std::vector<int64_t>{5, 2, 9});
  CHECK_FALSE(cursor.has_ended());
  claims->Add(3);
  CHECK(cursor.Claim() == 3);
  claims->End();
  CHECK(cursor.has_ended());
  CHECK_FALSE(other.has_ended());
  CHECK(ClaimAll(other) == std::vector<int64_t>{5, 2, 9, 3});
}

TEST_CASE("arguments outside the rule are refused") {
  const auto make = [](int64_t num_positions, int64_t rank, int64_t world_size) {
    return [=] { ChunkCursor(num_positions, rank, world_size); };
  };
  CHECK(Throws(ErrorKind::kInvalidArgument, make(-1, 0, 1)));
  CHECK(Throws(ErrorKind::kInvalidArgument, make(1, 0, 0)));
  CHECK(Throws(ErrorKind::kInvalidArgument, make(1, -1, 2)));
  CHECK(Throws(ErrorKind::kInvalidArgument, make(1, 2, 2)));
  CHECK(Throws(ErrorKind::kInvalidArgument, make(1, 0, -3)));
}

}  // namespace
}  // namespace torchparquet
