#pragma once

#include <cstdint>
#include <memory>

#include "network/remote_object.h"
#include "sources/remote_reads.h"
#include "sources/source.h"

namespace torchparquet {

// A file of a store, read through the blocks of one reader.
class RemoteFile : public Source {
 public:
  // Throws Error(kCorruptFile) if the object is not of the size that `expected` says.
  RemoteFile(std::shared_ptr<const RemoteObject> object,
             std::shared_ptr<RemoteReads> reads, const FileIdentity& expected);

  void ReadAt(int64_t offset, int64_t num_bytes, uint8_t* out) const override;
  // A request costs as much as some hundred KiB, so one should do.
  int64_t footer_read_bytes() const override { return kFooterReadBytes; }

  static constexpr int64_t kFooterReadBytes = int64_t{64} << 10;

 private:
  const std::shared_ptr<const RemoteObject> object_;
  const std::shared_ptr<RemoteReads> reads_;
};

}  // namespace torchparquet
