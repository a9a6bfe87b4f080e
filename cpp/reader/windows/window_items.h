#pragma once

#include <atomic>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "batches/column_target.h"
#include "batches/jagged.h"
#include "batches/layout.h"
#include "reader/windows/window_places.h"

namespace torchparquet {

// One column of variable length of a window: the rows of its chunks as they are decoded,
// until all are there and each batch gets its rows. Any thread may decode a chunk; one
// thread decodes it whole.
class WindowItems {
 public:
  // `num_gathers` tasks gather the rows.
  WindowItems(const FieldPlace& place, int64_t element, int64_t num_chunks,
              int64_t num_gathers, JaggedMemory* memory)
      : place_(place),
        element_(element),
        memory_(memory),
        chunks_(static_cast<size_t>(num_chunks)),
        num_ungathered_(num_gathers) {}
  ~WindowItems();
  WindowItems(const WindowItems&) = delete;
  WindowItems& operator=(const WindowItems&) = delete;

  // Begins a chunk: returns the segment of its rows, and memory for their items.
  Segment BeginRows(int64_t chunk, int64_t num_rows);
  JaggedItems BeginItems(int64_t num_rows) const;
  // Takes the decoded items and returns their bytes.
  int64_t EndItems(int64_t chunk, JaggedItems items);
  // Gathers the rows of one run in the order of their positions: offsets and masks in the
  // batch's slab, the rest in the part that is returned. All chunks must be done.
  JaggedPart Gather(const WindowPlaces& places, size_t run, uint8_t* slab) const;
  // Ends a task that gathers. The last one gives the memory of the chunks back.
  void EndGather();

 private:
  struct StagedChunk {
    SinkPool::Lease row_starts;        // int64, one more than rows
    SinkPool::Lease row_valid;         // empty if no mask is wanted
    std::optional<JaggedItems> items;  // with the ends of the starts of each level
    int64_t num_bytes = 0;
  };
  // The items of a row at one level.
  struct Range {
    const StagedChunk* chunk;
    int64_t begin;
    int64_t end;
  };

  std::vector<Range> GatherRows(const WindowPlaces& places, size_t run,
                                uint8_t* slab) const;
  void Clear();
  static void GatherStarts(size_t level, std::span<Range> ranges, JaggedItems* to);
  static void GatherValid(std::span<const Range> ranges, JaggedItems* to);
  static void GatherValues(std::span<const Range> ranges, JaggedItems* to);

  const FieldPlace& place_;
  const int64_t element_;  // of the field
  JaggedMemory* memory_;
  std::vector<StagedChunk> chunks_;
  std::atomic<int64_t> num_ungathered_;
};

}  // namespace torchparquet
