#include <arrow/util/config.h>

#include <string_view>

#include "bridge/arrow/guard.h"
#include "bridge/arrow/parts.h"
#include "bridge/arrow_library.h"

#define TORCHPARQUET_TEXT(value) #value
#define TORCHPARQUET_RELEASE(major, minor) \
  TORCHPARQUET_TEXT(major) "." TORCHPARQUET_TEXT(minor)

namespace torchparquet {
namespace {

class LinkedLibrary final : public ArrowLibrary {
 public:
  const char* release() const override {
    return TORCHPARQUET_RELEASE(ARROW_VERSION_MAJOR, ARROW_VERSION_MINOR);
  }
  Failure Open(const ByteSource& source, const ArrowOpening& opening,
               std::unique_ptr<ArrowFile>* file, FooterFacts* facts) const override {
    return bridge::OpenFile(source, opening, file, facts);
  }
  bool HasCodec(int codec) const override { return bridge::HasCodec(codec); }
  Failure OpenCodec(int codec, std::unique_ptr<ArrowCodec>* opened) const override {
    return bridge::OpenCodec(codec, opened);
  }
  Failure RememberKeys(std::span<const void* const> properties_of_files,
                       std::shared_ptr<KeyRing>* keys) const override {
    return bridge::Guard([&] { *keys = bridge::RememberKeys(properties_of_files); });
  }
};

constexpr LinkedLibrary kLibrary;

}  // namespace

extern "C" const ArrowLibrary* torchparquet_arrow_library(const char* abi) {
  return std::string_view(abi) == TORCHPARQUET_BRIDGE_ABI ? &kLibrary : nullptr;
}

}  // namespace torchparquet
