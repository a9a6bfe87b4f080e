#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "batches/batch_ring.h"
#include "reader/plan/share.h"
#include "reader/schedule/task_stream.h"
#include "reader/windows/window_cells.h"
#include "reader/windows/window_items.h"
#include "reader/windows/window_places.h"

namespace torchparquet {

// A window in work.
struct OpenWindow {
  OpenWindow(ChunkWindow chunk_window, std::span<const int64_t> chunk_rows,
             std::vector<BatchRun> runs, int row_bits, ScratchBuffer memory)
      : chunks(std::move(chunk_window.chunks)),
        places(chunk_window.window, chunk_rows, std::move(runs), row_bits,
               std::move(memory)) {}

  // The place in the order of a task that fails.
  FailureKey KeyOf(int64_t chunk, int64_t index) const {
    return {batches.begin, number, index * std::ssize(chunks) + chunk};
  }

  const std::vector<Chunk> chunks;
  WindowPlaces places;
  int64_t number = 0;
  BatchRange batches;
  std::vector<InFlightBatch*> in_flight = {};            // by their number in slots
  std::vector<std::unique_ptr<WindowItems>> items = {};  // by field of variable length
  std::vector<std::unique_ptr<WindowCells>> cells =
      {};                              // by task; null if cells are not items
  int64_t max_staged_bytes = 0;        // the most of any column
  std::atomic<int64_t> item_bytes{0};  // decoded so far, of all fields
  // Tasks count it down when they are done. The last one counts the batches down: a
  // window that fails delivers none, whatever the timing.
  std::atomic<int64_t> num_undone{0};
};

// One column of one chunk of a window, or one of its generated columns, which come after
// the stored ones.
struct WindowTask {
  OpenWindow* window = nullptr;
  int64_t chunk = 0;  // within the window
  int64_t index = 0;
};

}  // namespace torchparquet
