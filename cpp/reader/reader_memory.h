#pragma once

#include <memory>

#include "base/buffer_pool.h"
#include "batches/jagged.h"
#include "batches/slab_pool.h"
#include "reader/prefetch/carried_fetches.h"
#include "reader/schedule/scratch_pool.h"

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
