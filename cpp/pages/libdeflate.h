#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>

namespace torchparquet {

// Names a shared library with the functions of libdeflate, which is tried before that of
// the system. Call it before the first gzip page is read.
void OfferLibdeflate(const std::string& path);

// Decompresses gzip pages by libdeflate, in 0.4 to 0.7 of the time of the zlib that Arrow
// has. Looks for the library once. Used by one thread.
class Libdeflate {
 public:
  static bool IsAvailable();

  // Decompresses one gzip member to exactly `out`. Returns false if `bytes` are anything
  // else: several members, or damaged. Needs a library.
  bool Decompress(std::span<const uint8_t> bytes, std::span<uint8_t> out);

 private:
  struct Free {
    void operator()(void* decompressor) const;
  };
  std::unique_ptr<void, Free> decompressor_;
};

}  // namespace torchparquet
