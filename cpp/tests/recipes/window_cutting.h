#pragma once

#include <algorithm>
#include <cstdint>

#include "draws.h"
#include "tasks/share.h"

namespace torchparquet::testing {

// Divides a share's chunks into random windows, some of which deliver only a part, or
// nothing.
inline void CutToWindows(Draws& draws, Share* share) {
  const auto num_chunks = static_cast<int64_t>(share->chunks.size());
  for (int64_t chunk = 0; chunk < num_chunks;) {
    Window window{.num_chunks = std::min(draws.Between(0, 5), num_chunks - chunk),
                  .key = draws.Bits()};
    for (int64_t i = 0; i < window.num_chunks; ++i) {
      window.end += share->chunks[static_cast<size_t>(chunk++)].rows.num_rows;
    }
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
    Window window{.num_chunks = std::min(num_chunks, all - chunk),
                  .key = 77 + static_cast<uint64_t>(chunk)};
    for (int64_t i = 0; i < window.num_chunks; ++i) {
      window.end += share->chunks[static_cast<size_t>(chunk + i)].rows.num_rows;
    }
    share->windows.push_back(window);
  }
}

}  // namespace torchparquet::testing
