#pragma once

#include "batches/layout.h"
#include "prefetch/prefetcher.h"
#include "tasks/reader_spec.h"

namespace torchparquet {

// The row groups of a reader's shares in the order in which tasks come to them: one after
// another, or those of a shuffle window at once. Both must outlive what is returned.
Prefetcher::NextSteps ReadOrder(const ReaderSpec& spec, const BatchMap& batches);

// The paths of the columns that are stored, by task; empty for others.
std::vector<std::string> StoredPaths(const ReaderSpec& spec);

}  // namespace torchparquet
