#pragma once

#include <cstdint>

#include "base/scratch_buffer.h"
#include "base/task_costs.h"
#include "pages/page_codec.h"

namespace torchparquet {

// The buffers that one column reader keeps from task to task. The next reader reuses
// them.
struct ColumnBuffers {
  ScratchBuffer file_bytes;  // bytes of the file, if it is not compressed
  ScratchBuffer page;        // bytes of a decompressed data page
  ScratchBuffer next_page;   // of the page after it, decompressed together with it
  ScratchBuffer dictionary;  // values of the column chunk's dictionary
  ScratchBuffer indices;     // indices, or bytes, of a dictionary of longer values
  ScratchBuffer codes;       // a dictionary's strings as numbers of a vocabulary
  ScratchBuffer levels;      // levels in the deprecated encoding, repacked
  ScratchBuffer selected;    // bits of selected values, and of which rows have one

  int64_t num_bytes() const {
    return static_cast<int64_t>(file_bytes.capacity() + page.capacity() +
                                next_page.capacity() + dictionary.capacity() +
                                indices.capacity() + codes.capacity() +
                                levels.capacity() + selected.capacity());
  }
};

// The buffers that one decode thread reuses from task to task. Their content does not
// outlive a task.
struct DecodeScratch {
  ScratchBuffer file_bytes;  // compressed bytes of the file
  ScratchBuffer page;        // bytes of a decompressed dictionary page
  PageCodec codec;
  ScratchBuffer validity;  // one byte per row of a block
  ScratchBuffer dense;     // stored values of a block with nulls
  ScratchBuffer block;     // values that will be written with a stride
  // For shuffle windows: row numbers, cells of a strip, their mask, and the buffers of
  // column readers that have ended.
  ScratchBuffer rows;
  ScratchBuffer strip;
  ScratchBuffer strip_valid;
  ColumnBuffers column;
  TaskCosts costs;  // of the current task
};

}  // namespace torchparquet
