#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>

namespace arrow::util {
class Codec;
class Decompressor;
}  // namespace arrow::util

namespace torchparquet {

// What a parquet::Compression::type is called, in lower case.
std::string CodecName(int codec);

// Decompresses pages of one codec after the other, keeping contexts from page to page.
// One thread's.
class PageCodec {
 public:
  PageCodec();
  ~PageCodec();

  // Decompresses `bytes` to exactly `out`. `codec` is a parquet::Compression::type.
  // Throws Error(kCorruptFile) when the content is damaged or of another size.
  void Decompress(int codec, std::span<const uint8_t> bytes, std::span<uint8_t> out);

 private:
  void Open(int codec);

  int codec_type_ = -1;
  std::unique_ptr<arrow::util::Codec> codec_;
  std::shared_ptr<arrow::util::Decompressor> decompressor_;  // zstd only
};

}  // namespace torchparquet
