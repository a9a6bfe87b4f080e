#pragma once

#include "base/errors.h"
#include "reader/schedule/task_context.h"

namespace torchparquet {

// The failure of a task of the chunk, with the row that it is about where it tells one:
// its number in its row group, and its row id. Documents that are packed to sequences
// have no ids.
Error NameRow(const TaskContext& context, const Chunk& chunk, const Error& error);

}  // namespace torchparquet
