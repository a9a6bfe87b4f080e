#pragma once

#include <memory>
#include <span>
#include <utility>

#include "bridge/arrow_library.h"

namespace parquet {
class FileDecryptionProperties;
}  // namespace parquet

namespace torchparquet::bridge {

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

// As ArrowLibrary::RememberKeys.
std::shared_ptr<KeyRing> RememberKeys(std::span<const void* const> properties_of_files);

}  // namespace torchparquet::bridge
