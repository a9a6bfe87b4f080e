#pragma once

#include <memory>

#include "jagged.h"
#include "scratch_pool.h"
#include "slab_pool.h"

namespace torchparquet {

// The memory of a reader, which a later one goes on with as far as it fits. Any may be
// null.
struct ReaderMemory {
  std::shared_ptr<SlabPool> slabs;
  std::shared_ptr<SinkPool> sinks;
  std::shared_ptr<ScratchPool> scratch;
};

}  // namespace torchparquet
