#include "reader/windows/window_places.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <numeric>
#include <thread>
#include <vector>

#include "draws.h"
#include "recipes/made_permutation.h"
#include "tried.h"

namespace torchparquet {
namespace {

using kernels::kNoSlot;
using testing::Draws;

constexpr int kRowBits = 9;

// A random window with its rows by chunk and its runs in batches.
struct Setting {
  explicit Setting(Draws& draws, bool is_large) {
    for (int64_t i = draws.Between(1, 6); i > 0; --i) {
      chunk_rows.push_back(draws.Between(1, is_large ? 200'000 : 400));
    }
    num_rows = std::accumulate(chunk_rows.begin(), chunk_rows.end(), int64_t{0});
    window = {.num_rows = num_rows, .key = draws.Bits()};
    window.begin = draws.OneIn(2) ? 0 : draws.Between(0, num_rows - 1);
    window.end = draws.OneIn(2) ? num_rows : draws.Between(window.begin + 1, num_rows);
    // Runs of random sizes from somewhere in the first batch on.
    for (int64_t left = window.end - window.begin; left > 0;) {
      const int64_t first_row = runs.empty() ? draws.Between(0, 300) : 0;
      const int64_t count = std::min(left, draws.Between(1, 512 - first_row));
      runs.push_back({std::ssize(runs), first_row, count});
      left -= count;
    }
  }

  // The slot of each row, by the permutation.
  std::vector<uint32_t> Slots() const {
    std::vector<uint32_t> slot_at;
    for (size_t run = 0; run < runs.size(); ++run) {
      for (int64_t i = 0; i < runs[run].num_rows; ++i) {
        slot_at.push_back(
            static_cast<uint32_t>((run << kRowBits) + runs[run].first_row + i));
      }
    }
    const std::vector<uint32_t> positions =
        testing::MadePermutation(window.key, num_rows).Positions(0, num_rows);
    std::vector<uint32_t> slots(positions.size(), kNoSlot);
    for (size_t row = 0; row < slots.size(); ++row) {
      if (positions[row] < window.begin || positions[row] >= window.end) continue;
      slots[row] = slot_at[positions[row] - static_cast<size_t>(window.begin)];
    }
    return slots;
  }

  std::vector<int64_t> chunk_rows;
  int64_t num_rows = 0;
  Window window;
  std::vector<BatchRun> runs;
};

// Brings a chunk's rows, the first of which is `first` of the window, to their places,
// strip by strip, as they are decoded. Returns the number of whole strips.
int64_t BringRows(const WindowPlaces& places, int64_t chunk, int64_t first, int64_t rows,
                  std::vector<uint32_t>* row_at) {
  int64_t num_strips = 0;
  for (int64_t row = 0; row < rows;) {
    const int64_t count = std::min(rows, places.StripEnd(chunk, row)) - row;
    REQUIRE(count > 0);
    REQUIRE(count <= places.strip_rows());
    const auto some = static_cast<size_t>(count);
    std::vector<uint32_t> numbers(some);
    std::iota(numbers.begin(), numbers.end(), static_cast<uint32_t>(first + row));
    std::vector<uint32_t> own(some);
    places.Places(chunk, row, count, own.data());
    if (const auto strip = places.StripAt(chunk, row, count)) {
      ++num_strips;
      REQUIRE(strip->size() == some);
      kernels::Partition(numbers.data(), *strip, row_at->data());
      for (size_t i = 0; i < some; ++i) CHECK(row_at->at(own[i]) == numbers[i]);
    }
    for (size_t i = 0; i < some; ++i) row_at->at(own[i]) = numbers[i];
    row += count;
  }
  return num_strips;
}

// The slot of each row, by the order of the pieces of buckets.
std::vector<uint32_t> SlotsOfPieces(const WindowPlaces& places,
                                    const std::vector<uint32_t>& row_at,
                                    int64_t num_rows) {
  std::vector<uint32_t> found(static_cast<size_t>(num_rows), kNoSlot);
  for (const WindowPlaces::Piece& piece : places.pieces()) {
    auto slot = static_cast<uint32_t>((piece.run << kRowBits) +
                                      static_cast<size_t>(piece.first_row));
    for (const uint16_t place : piece.order) {
      const auto at = static_cast<size_t>(piece.bucket_begin) + place;
      found.at(row_at.at(at)) = slot++;
    }
    CHECK(piece.next_begin < places.num_places());
  }
  return found;
}

void MakeByThreads(WindowPlaces& places) {
  std::vector<std::thread> threads;
  threads.reserve(3);
  for (int i = 0; i < 3; ++i) {
    threads.emplace_back([&] { places.Make(); });
  }
  for (std::thread& thread : threads) thread.join();
}

TEST_CASE("slots and orders are where the permutation puts the rows") {
  Draws draws(testing::SeedTried(211));
  int64_t num_strips = 0;
  for (int64_t trial = 0; trial < testing::NumTried(60); ++trial) {
    const Setting setting(draws, trial % 20 == 0);
    const std::vector<uint32_t> expected = setting.Slots();
    WindowPlaces places(setting.window, setting.chunk_rows, setting.runs, kRowBits, {});
    MakeByThreads(places);
    std::vector<uint32_t> slots(expected.size());
    std::vector<uint32_t> row_at(static_cast<size_t>(places.num_places()), kNoSlot);
    int64_t first = 0;
    for (int64_t chunk = 0; chunk < std::ssize(setting.chunk_rows); ++chunk) {
      const int64_t rows = setting.chunk_rows[static_cast<size_t>(chunk)];
      const int64_t cut = draws.Between(0, rows);
      places.Slots(chunk, 0, cut, slots.data() + first);
      places.Slots(chunk, cut, rows - cut, slots.data() + first + cut);
      num_strips += BringRows(places, chunk, first, rows, &row_at);
      first += rows;
    }
    CHECK(slots == expected);
    CHECK(SlotsOfPieces(places, row_at, setting.num_rows) == expected);
    for (const int64_t row : {int64_t{0}, setting.num_rows - 1}) {
      const WindowPlaces::ChunkRow at = places.ChunkOf(static_cast<uint32_t>(row));
      const auto begin = setting.chunk_rows.begin();
      const int64_t before =
          std::accumulate(begin, begin + static_cast<int64_t>(at.chunk), int64_t{0});
      CHECK(before + static_cast<int64_t>(at.row) == row);
    }
  }
  if (testing::ScheduleSeed() == 0) CHECK(num_strips > 100);
}

}  // namespace
}  // namespace torchparquet
