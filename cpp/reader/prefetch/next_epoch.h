#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <set>
#include <utility>
#include <vector>

#include "base/buffer_pool.h"
#include "files/parquet_files.h"
#include "reader/prefetch/carried_fetches.h"
#include "reader/prefetch/step_chunks.h"
#include "remote/blocks/remote_reads.h"

namespace torchparquet {

// Asks for what the next reader reads first, and leaves it to that. Used by one thread at
// a time.
class NextEpoch {
 public:
  struct Parts {
    std::shared_ptr<ReaderFiles> files;
    std::shared_ptr<RemoteReads> reads;
    std::vector<StoredColumn> columns;
    std::shared_ptr<CarriedFetches> carried;  // null to leave nothing
    std::shared_ptr<BufferPool> memory;
    int64_t max_bytes = 0;
    int64_t max_block_bytes = kMaxBlockBytes;
  };
  explicit NextEpoch(Parts parts) : parts_(std::move(parts)) {}

  // Once. Steps that are read at once stand together.
  void Announce(std::vector<std::vector<ReadStep>> steps);
  // Asks as long as there is room for that many more bytes. Files whose footers are not
  // known are passed over.
  void Advance(const std::function<bool(int64_t num_bytes)>& has_room);

 private:
  struct Waiting {
    int64_t file = 0;
    PlannedFetch fetch;
    bool ends_step = false;
  };

  void Plan(const std::vector<ReadStep>& steps);

  const Parts parts_;
  std::deque<std::vector<ReadStep>> steps_;
  std::deque<Waiting> waiting_;
  std::set<std::pair<int64_t, int64_t>> planned_;  // blocks of files, by offset
};

}  // namespace torchparquet
