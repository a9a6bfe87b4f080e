#pragma once

#include <span>
#include <vector>

#include "base/errors.h"
#include "kernels/shuffle/partition.h"
#include "pages/decode_scratch.h"
#include "reader/schedule/task_context.h"
#include "reader/windows/open_window.h"

namespace torchparquet {

// Runs tasks: decodes one column of a chunk, strip by strip, and brings each strip closer
// to the batches of the window; or gathers a column's rows of some batches. Immutable, so
// shared by all threads.
class WindowTaskRunner {
 public:
  explicit WindowTaskRunner(const TaskContext& context) : context_(context) {}

  // Returns false if the items of the window are too large. Throws Error with path, row
  // group and column; Error(kStopped) when told to end.
  bool Run(const WindowTask& task, DecodeScratch* scratch) const;
  // The failure of a window whose items are too large: the same for each of its tasks.
  Error TooLarge() const;

 private:
  class Strips;
  class Staged;

  bool IsTooLarge(const OpenWindow& window) const;
  std::unique_ptr<ColumnReader> OpenReader(const WindowTask& task,
                                           DecodeScratch* scratch) const;
  WindowItems* ItemsOf(const WindowTask& task) const;
  bool ReadItems(const WindowTask& task, DecodeScratch* scratch) const;
  bool GatherItems(const WindowTask& task) const;  // false: the window is too large
  void ReadColumn(const WindowTask& task, DecodeScratch* scratch, Strips* strips) const;
  void ReadCells(const WindowTask& task, DecodeScratch* scratch) const;
  void EndChunk(const WindowTask& task, DecodeScratch* scratch) const;
  void GatherCells(const WindowTask& task) const;
  void CountDown(OpenWindow* window) const;

  const TaskContext context_;
};

}  // namespace torchparquet
