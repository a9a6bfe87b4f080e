#pragma once

#include <algorithm>
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
#include "remote/blocks/remote_blocks.h"

namespace torchparquet {

// A window in work.
struct OpenWindow {
  OpenWindow(ChunkWindow chunk_window, std::span<const int64_t> chunk_rows,
             std::vector<BatchRun> runs, int row_bits, ScratchBuffer memory,
             std::vector<int64_t> gathers)
      : chunks(std::move(chunk_window.chunks)),
        places(chunk_window.window, chunk_rows, std::move(runs), row_bits,
               std::move(memory)),
        num_gathers(std::move(gathers)) {}

  // Tasks of a column: one for each chunk, then those that gather its rows.
  int64_t NumTasks(int64_t index) const {
    return std::ssize(chunks) + num_gathers[static_cast<size_t>(index)];
  }
  // The place in the order of a task that fails.
  FailureKey KeyOf(int64_t part, int64_t index) const {
    const int64_t most = std::ssize(chunks) + std::ranges::max(num_gathers);
    return {batches.begin, number, index * most + part};
  }

  const std::vector<Chunk> chunks;
  // By chunk and stored column, until the task is taken; none for a file in no store.
  std::vector<std::vector<RemoteBlocks::Handle>> handles = {};
  WindowPlaces places;
  int64_t number = 0;
  BatchRange batches;
  std::vector<InFlightBatch*> in_flight = {};            // by their number in slots
  std::vector<std::unique_ptr<WindowItems>> items = {};  // by column of variable length
  // By task; null if cells are not items.
  std::vector<std::unique_ptr<WindowCells>> cells = {};
  std::vector<int64_t> num_gathers;    // by task; 0 if rows go to their batches at once
  int64_t max_staged_bytes = 0;        // the most of any column
  std::atomic<int64_t> item_bytes{0};  // decoded so far, of all fields
  // Of a window with an order, which may have rows more than once: gathered so far.
  std::atomic<int64_t> gathered_bytes{0};
  // Tasks count it down when they are done. The last one counts the batches down: a
  // window that fails delivers none, whatever the timing.
  std::atomic<int64_t> num_undone{0};
};

// One column of one chunk of a window, or one of its generated columns, which come after
// the stored ones. After the last chunk of a column come tasks that gather its rows, each
// those of other batches.
struct WindowTask {
  bool gathers() const { return part >= std::ssize(window->chunks); }
  // Of a task that does not gather.
  const Chunk& chunk() const { return window->chunks[static_cast<size_t>(part)]; }
  // Of a task that reads bytes of a store; else null.
  RemoteBlocks::Handle* handle() const {
    if (gathers()) return nullptr;
    std::vector<RemoteBlocks::Handle>& handles =
        window->handles[static_cast<size_t>(part)];
    const auto i = static_cast<size_t>(index);
    return i < handles.size() ? &handles[i] : nullptr;
  }
  // The part of `size` things that a task gathers, from begin to end.
  std::pair<size_t, size_t> PartOf(size_t size) const {
    const auto parts =
        static_cast<size_t>(window->num_gathers[static_cast<size_t>(index)]);
    const auto number = static_cast<size_t>(part - std::ssize(window->chunks));
    return {number * size / parts, (number + 1) * size / parts};
  }

  OpenWindow* window = nullptr;
  int64_t part = 0;  // a chunk within the window, or beyond those
  int64_t index = 0;
};

}  // namespace torchparquet
