#pragma once

#include <memory>

#include "batches/jagged.h"
#include "batches/slab_pool.h"
#include "buffer_pool.h"
#include "prefetch/carried_fetches.h"
#include "tasks/scratch_pool.h"

namespace torchparquet {

// The memory of a reader, which a later reader uses as far as it fits. Any pointer may be
// null.
struct ReaderMemory {
  std::shared_ptr<SlabPool> slabs;
  std::shared_ptr<SinkPool> sinks;
  std::shared_ptr<ScratchPool> scratch;
  std::shared_ptr<BufferPool> fetched;
  std::shared_ptr<CarriedFetches> carried;
};

}  // namespace torchparquet
