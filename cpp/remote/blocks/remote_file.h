#pragma once

#include <algorithm>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>

#include "base/byte_range.h"
#include "base/errors.h"
#include "format/source.h"
#include "remote/blocks/remote_blocks.h"
#include "remote/transport/remote_object.h"

namespace torchparquet {

// A file of a store, read through the blocks of one reader.
class RemoteFile : public Source {
 public:
  // Throws Error(kChanged) if the object is not of the size that `expected` says.
  RemoteFile(std::shared_ptr<const RemoteObject> object,
             std::shared_ptr<RemoteBlocks> blocks, const FileIdentity& expected)
      : Source(object->path), object_(std::move(object)), blocks_(std::move(blocks)) {
    Identify({.num_bytes = object_->num_bytes}, expected);
  }

  void ReadAt(int64_t offset, int64_t num_bytes, uint8_t* out) const override {
    Read({offset, num_bytes}, RemoteBlocks::Reading::kData, out);
  }
  void LookAt(int64_t offset, int64_t num_bytes, uint8_t* out) const override {
    Read({offset, num_bytes}, RemoteBlocks::Reading::kMetadata, out);
  }
  std::shared_ptr<const uint8_t> Borrow(const ByteRange& range) const override {
    return blocks_->Borrow(object_->number, range);
  }
  // A request costs as much as some hundred KiB, so one should do.
  int64_t footer_read_bytes() const override { return kFooterReadBytes; }

  static constexpr int64_t kFooterReadBytes = int64_t{64} << 10;
  // The bytes of an object that are read to find its footer.
  static ByteRange FooterRange(const RemoteObject& object) {
    const int64_t num_bytes = std::clamp<int64_t>(object.num_bytes, 0, kFooterReadBytes);
    return {std::max<int64_t>(object.num_bytes, 0) - num_bytes, num_bytes};
  }

 private:
  void Read(const ByteRange& range, RemoteBlocks::Reading reading, uint8_t* out) const {
    if (range.offset < 0 || range.num_bytes < 0 ||
        range.num_bytes > num_bytes() - range.offset) {
      throw CorruptFile("file ends before the ", range.num_bytes, " bytes at offset ",
                        range.offset);
    }
    blocks_->Read(object_, range, out, reading);
  }

  const std::shared_ptr<const RemoteObject> object_;
  const std::shared_ptr<RemoteBlocks> blocks_;
};

}  // namespace torchparquet
