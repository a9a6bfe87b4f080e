#pragma once

#include "batches/layout.h"
#include "prefetch/steps_ahead.h"
#include "tasks/reader_spec.h"

namespace torchparquet {

// The row groups of a reader's shares in the order in which tasks come to them: one after
// another, or those of a shuffle window at once. Both must outlive what is returned.
NextSteps ReadOrder(const ReaderSpec& spec, const BatchMap& batches);

// The columns of tasks, as files store them.
std::vector<StoredColumn> StoredColumns(const ReaderSpec& spec);

}  // namespace torchparquet
