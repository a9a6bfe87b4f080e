#pragma once

#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "bridge/arrow_library.h"

namespace parquet {
class FileDecryptionProperties;
class SchemaDescriptor;
}  // namespace parquet

namespace torchparquet::bridge {

// The parts of the library, each in the source of its name.

// arrow_file: as ArrowLibrary::Open.
Failure OpenFile(const ByteSource& source, const ArrowOpening& opening,
                 std::unique_ptr<ArrowFile>* file, FooterFacts* facts);

// schema_leaves.
std::vector<SchemaLeaf> LeavesOf(const parquet::SchemaDescriptor& schema);

// codecs: by the numbers of the format. NumberOfCodec takes one of Arrow's.
bool HasCodec(int codec);
Failure OpenCodec(int codec, std::unique_ptr<ArrowCodec>* opened);
int NumberOfCodec(int arrow_codec);

// remembered_keys: as ArrowLibrary::RememberKeys, which gives each file such keys.
class ArrowKeys : public FileKeys {
 public:
  explicit ArrowKeys(std::shared_ptr<parquet::FileDecryptionProperties> properties)
      : properties_(std::move(properties)) {}

  const std::shared_ptr<parquet::FileDecryptionProperties>& properties() const {
    return properties_;
  }

 private:
  std::shared_ptr<parquet::FileDecryptionProperties> properties_;
};

std::shared_ptr<KeyRing> RememberKeys(std::span<const void* const> properties_of_files);

}  // namespace torchparquet::bridge
