#pragma once

#include <pybind11/pybind11.h>

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "bindings/arrays.h"
#include "files/parquet_file.h"
#include "remote/blocks/remote_blocks.h"
#include "remote/disk_cache/block_cache.h"
#include "remote/transport/broker.h"
#include "remote/transport/cached_fetcher.h"
#include "remote/transport/fetcher.h"

namespace torchparquet {

// The files of a data set in a store, for one process: what brings their bytes, the
// requests that Python answers, and the footers that were read.
class RemoteStore {
 public:
  // With addresses, bytes come by HTTP; without, Python reads them. Throws
  // Error(kNotSupported) if addresses are given and this build has no HTTP.
  RemoteStore(const std::vector<std::string>& paths, const Int64Array& num_bytes,
              const std::vector<std::string>& etags,
              const std::vector<std::string>& identities, bool with_addresses,
              const FetchOptions& options, std::shared_ptr<BlockCache> cache);
  ~RemoteStore() { broker_->Close(); }
  RemoteStore(const RemoteStore&) = delete;
  RemoteStore& operator=(const RemoteStore&) = delete;

  // Gives each file its object. Throws ValueError for another number of files.
  void AddTo(std::vector<PlannedFile>* files) const;
  void KeepFooters(std::vector<std::shared_ptr<const ParsedFooter>> footers) {
    footers_ = std::move(footers);
  }
  const std::vector<std::shared_ptr<const ParsedFooter>>& footers() const {
    return footers_;
  }
  Broker& broker() { return *broker_; }
  const std::shared_ptr<const RemoteObject>& object(size_t file) const {
    return objects_.at(file);
  }
  // The blocks that Python reads. Other readers have tables of their own.
  RemoteBlocks& blocks() { return *blocks_; }
  // Ends the requests that Python answers, and what it reads.
  void Close() {
    blocks_->Stop();
    broker_->Close();
  }

 private:
  const std::shared_ptr<Broker> broker_;
  std::shared_ptr<Fetcher> fetcher_;
  std::shared_ptr<CachedFetcher> cached_;  // null without a cache on disk
  std::shared_ptr<RemoteBlocks> blocks_;
  std::vector<std::shared_ptr<const RemoteObject>> objects_;
  std::vector<std::shared_ptr<const ParsedFooter>> footers_;
};

}  // namespace torchparquet
