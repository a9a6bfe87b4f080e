#pragma once

#include <algorithm>
#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "draws.h"
#include "reader/plan/share.h"

namespace torchparquet::testing {

// Rows of a window at random: some several times, some not at all.
inline std::shared_ptr<const std::vector<uint32_t>> RandomOrder(Draws& draws,
                                                                int64_t num_rows) {
  const int64_t most = num_rows == 0 ? 0 : 2 * num_rows + 1;
  std::vector<uint32_t> order(static_cast<size_t>(draws.Between(0, most)));
  for (uint32_t& row : order) row = static_cast<uint32_t>(draws.Below(num_rows));
  return std::make_shared<const std::vector<uint32_t>>(std::move(order));
}

// Divides a share's rows into random windows, some of which deliver only a part, or
// nothing. Some end within a chunk. With orders, all of them have a random one.
inline void CutToWindows(Draws& draws, Share* share, bool have_orders = false) {
  int64_t left = 0;
  for (const Chunk& chunk : share->chunks) left += chunk.rows.num_rows;
  const int64_t most = 1 + left / draws.Between(1, 8);
  while (left > 0) {
    Window window{.num_rows = std::min(draws.Between(0, most), left),
                  .key = draws.Bits()};
    left -= window.num_rows;
    if (have_orders) window.order = RandomOrder(draws, window.num_rows);
    window.end = window.num_positions();
    if (draws.OneIn(4)) window.begin = draws.Between(0, window.end);
    if (draws.OneIn(4)) window.end = draws.Between(window.begin, window.end);
    share->windows.push_back(window);
  }
}

// Lays one whole window over every `num_chunks` chunks of the share.
inline void SetWindows(Share* share, int64_t num_chunks) {
  const auto all = static_cast<int64_t>(share->chunks.size());
  share->windows.clear();
  for (int64_t chunk = 0; chunk < all; chunk += num_chunks) {
    Window window{.key = 77 + static_cast<uint64_t>(chunk)};
    for (int64_t i = chunk; i < std::min(chunk + num_chunks, all); ++i) {
      window.num_rows += share->chunks[static_cast<size_t>(i)].rows.num_rows;
    }
    window.end = window.num_rows;
    share->windows.push_back(window);
  }
}

}  // namespace torchparquet::testing
