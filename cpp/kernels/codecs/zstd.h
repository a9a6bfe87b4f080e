#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>

#include "kernels/codecs/block_lanes.h"
#include "kernels/codecs/zstd_blocks.h"
#include "kernels/codecs/zstd_content.h"

namespace torchparquet::kernels {

// Decompresses frames of zstd, whose tables and buffers it keeps. Returns false if the
// bytes are damaged or the content is not as long as `out`, whose bytes are then
// undefined; and for what it does not serve, which a library may: dictionaries, frames
// of versions before 0.8, windows beyond 1 GiB. Never reads or writes outside the spans.
// Source: RFC 8878.
class ZstdDecoder {
 public:
  ZstdDecoder();

  bool Decompress(const CompressedBlock& page);

  // The same for two pages at once, in less time than one after the other.
  std::array<bool, 2> DecompressPair(const CompressedBlock& first,
                                     const CompressedBlock& second);

 private:
  // Content that is written, block after block.
  struct Output {
    std::span<uint8_t> memory;
    size_t num_written = 0;
    size_t frame_begin = 0;
    ZstdOffsets offsets{};

    bool IsFull() const { return num_written == memory.size(); }
    bool Write(const ZstdBlock& block, const ZstdSequence* sequences);
  };

  // Decodes both blocks as far as the shorter one goes. Finish decodes the rest of one
  // and writes its content.
  void DecodeBoth();
  bool Finish(size_t slot, Output* output);
  size_t WorkLeft(size_t slot) const;
  // The blocks of a page that are still to be read.
  bool DecompressRest(ZstdBlocks* blocks, Output* output);

  std::array<ZstdBlocks, 2> blocks_;
  std::array<ZstdBlock, 2> slots_;
  std::unique_ptr<ZstdLiteralMemory> literals_;
  std::unique_ptr<ZstdSequenceMemory> sequences_;
};

}  // namespace torchparquet::kernels
