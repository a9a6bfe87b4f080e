#pragma once

#include <cstdint>

#include "base/errors.h"
#include "reader/schedule/task_context.h"

namespace torchparquet {

// The failure of the chunk's task number `index`, with the row that it is about where
// that can be told: its number in its row group, and its row id. Column readers convert
// many values at once, so the row of a value that does not fit is found by reading the
// rows one by one. Documents that are packed to sequences have no ids.
Error NameRow(const TaskContext& context, const Chunk& chunk, int64_t index,
              const Error& error);

}  // namespace torchparquet
