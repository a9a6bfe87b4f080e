#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "batches/batch_ring.h"
#include "tasks/share.h"
#include "tasks/task_stream.h"
#include "windows/window_cells.h"
#include "windows/window_items.h"
#include "windows/window_places.h"

namespace torchparquet {

// A window whose columns are being decoded.
struct OpenWindow {
  OpenWindow(ChunkWindow chunk_window, std::span<const int64_t> chunk_rows,
             std::vector<BatchRun> runs, int row_bits, ScratchBuffer memory)
      : chunks(std::move(chunk_window.chunks)),
        places(chunk_window.window, chunk_rows, std::move(runs), row_bits,
               std::move(memory)) {}

  const std::vector<Chunk> chunks;
  WindowPlaces places;
  int64_t number = 0;
  BatchRange batches;
  std::vector<InFlightBatch*> in_flight = {};            // as numbered in slots
  std::vector<std::unique_ptr<WindowItems>> items = {};  // by field of variable length
  std::vector<std::unique_ptr<WindowCells>> cells = {};  // by task; null: no items
  int64_t max_staged_bytes = 0;                          // of any of those
  std::atomic<int64_t> item_bytes{0};                    // decoded of those
  std::atomic<bool> is_too_large{false};                 // so that they are too many
  // Counted down by tasks that did their work. Batches are counted down with the last of
  // them: a window that fails delivers none, whatever the timing.
  std::atomic<int64_t> num_undone{0};
};

// One column of one chunk of a window, or one of the generated columns behind them.
struct WindowTask {
  OpenWindow* window = nullptr;
  int64_t chunk = 0;  // within the window
  int64_t index = 0;
};

}  // namespace torchparquet
