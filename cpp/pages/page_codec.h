#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>

#include "bridge/arrow_library.h"
#include "kernels/codecs/block_lanes.h"
#include "kernels/codecs/zstd.h"
#include "pages/libdeflate.h"

namespace torchparquet {

// The name of a Codec::Number in lower case.
std::string CodecName(int codec);

// Decompresses pages of one codec after another: Snappy, LZ4 and zstd by our kernels;
// gzip by libdeflate if there is one; others by Arrow's codecs. Arrow's zstd decides
// about pages that ours refuses. Contexts are kept from page to page. Used by one thread.
//
// Hadoop's LZ4 is a sequence of blocks, each of the size of its content and one or more
// compressed parts with their sizes. Arrow reads blocks of one part, and pages of early
// writers that have no such frame.
class PageCodec {
 public:
  // Decompresses `bytes` to exactly `out`. `codec` is a Codec::Number.
  // Throws Error(kCorruptFile) when the content is damaged or of another size.
  void Decompress(int codec, std::span<const uint8_t> bytes, std::span<uint8_t> out);

  // True for codecs that can decompress two pages at once.
  static bool TakesPairs(int codec);
  // True if such a page takes less time together with another one. Pages that hardly
  // compress are copied, which a second page does not shorten.
  static bool GainsByPair(int codec, int64_t compressed_bytes, int64_t num_bytes);
  // Decompresses two pages of such a codec. Throws as Decompress for `first`; returns
  // whether `second` is good.
  bool DecompressPair(int codec, const kernels::CompressedBlock& first,
                      const kernels::CompressedBlock& second);

 private:
  void Open(int codec);
  bool DecompressHadoopLz4(std::span<const uint8_t> bytes, std::span<uint8_t> out);

  kernels::ZstdDecoder& Zstd();

  Libdeflate libdeflate_;
  std::unique_ptr<kernels::ZstdDecoder> zstd_;
  int codec_type_ = -1;
  std::unique_ptr<ArrowCodec> codec_;
};

}  // namespace torchparquet
