#pragma once

#include <algorithm>
#include <cstdint>

#include "draws.h"
#include "reader/plan/share.h"

namespace torchparquet::testing {

// Divides a share's rows into random windows, some of which deliver only a part, or
// nothing. Some end within a chunk.
inline void CutToWindows(Draws& draws, Share* share) {
  int64_t left = 0;
  for (const Chunk& chunk : share->chunks) left += chunk.rows.num_rows;
  const int64_t most = 1 + left / draws.Between(1, 8);
  while (left > 0) {
    Window window{.num_rows = std::min(draws.Between(0, most), left),
                  .key = draws.Bits()};
    left -= window.num_rows;
    window.end = window.num_rows;
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
