#include "remote/blocks/remote_file.h"

#include <string>
#include <utility>

#include "base/errors.h"

namespace torchparquet {

RemoteFile::RemoteFile(std::shared_ptr<const RemoteObject> object,
                       std::shared_ptr<RemoteBlocks> blocks, const FileIdentity& expected)
    : Source(object->path), object_(std::move(object)), blocks_(std::move(blocks)) {
  Identify({.num_bytes = object_->num_bytes}, expected);
}

void RemoteFile::ReadAt(int64_t offset, int64_t num_bytes, uint8_t* out) const {
  Read(offset, num_bytes, RemoteBlocks::Reading::kData, out);
}

void RemoteFile::LookAt(int64_t offset, int64_t num_bytes, uint8_t* out) const {
  Read(offset, num_bytes, RemoteBlocks::Reading::kMetadata, out);
}

void RemoteFile::Read(int64_t offset, int64_t num_bytes, RemoteBlocks::Reading reading,
                      uint8_t* out) const {
  if (offset < 0 || num_bytes < 0 || num_bytes > this->num_bytes() - offset) {
    throw CorruptFile("file ends before the " + std::to_string(num_bytes) +
                      " bytes at offset " + std::to_string(offset));
  }
  blocks_->Read(object_, {offset, num_bytes}, out, reading);
}

}  // namespace torchparquet
