#pragma once

#include <cstdint>
#include <vector>

#include "batches/layout.h"
#include "reader/plan/reader_spec.h"
#include "reader/plan/share.h"
#include "reader/prefetch/steps_ahead.h"

namespace torchparquet {

// The row groups of a reader's shares in the order in which tasks come to them: one after
// another, or those of a shuffle window at once. Both must outlive what is returned.
NextSteps ReadOrder(const ReaderSpec& spec, const BatchMap& batches);

// The first steps of shares that another reader will read, so many of each.
std::vector<std::vector<ReadStep>> FirstSteps(const ReaderSpec& spec,
                                              const std::vector<Share>& shares,
                                              int64_t count);

// The columns of tasks, as files store them.
std::vector<StoredColumn> StoredColumns(const ReaderSpec& spec);

}  // namespace torchparquet
