#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>

#include "kernels/codecs/zstd_literals.h"
#include "kernels/codecs/zstd_sequences.h"
#include "kernels/codecs/zstd_tables.h"

namespace torchparquet::kernels {

// A block whose headers are read, and what they say of its frame.
struct ZstdBlock {
  // Raw and repeated blocks have literals only.
  std::span<const uint8_t> literals;
  ZstdStreams streams;  // still to be decoded to literals, if any
  ZstdCodedSequences sequences;

  bool begins_frame = false;
  bool ends_frame = false;
  size_t max_bytes = 0;  // of its content
  // Of a frame that ends here, where it says so.
  std::optional<uint64_t> frame_bytes;
  std::optional<uint32_t> checksum;

  // Memory for tables of its own, or copies of those of a block before, and for literals.
  ZstdHuffmanTable* huffman = nullptr;
  ZstdStateTables* states = nullptr;
  uint8_t* literal_memory = nullptr;
};

// Reads the blocks of all frames in a span, and the tables that blocks share.
class ZstdBlocks {
 public:
  void Begin(std::span<const uint8_t> bytes);

  // True if no block is left.
  bool AtEnd() const { return in_.empty(); }
  // Reads the next block, or returns false if it is damaged or cannot be served. Of two
  // blocks, one is read while the other one keeps the tables of the block before.
  bool Read(ZstdBlock* block);
  // Skips frames that hold no content. Returns false if one is damaged.
  bool SkipFrames();

 private:
  bool ReadFrameHeader();
  bool ReadFrameEnd(ZstdBlock* block);
  bool ReadContent(std::span<const uint8_t> content, ZstdBlock* block);
  bool ReadLiterals(std::span<const uint8_t>* content, ZstdBlock* block);
  bool ReadStreams(std::span<const uint8_t> streams, ZstdBlock* block);
  bool ReadSequences(std::span<const uint8_t> content, ZstdBlock* block);

  std::span<const uint8_t> in_;
  bool in_frame_ = false;
  bool has_checksum_ = false;
  size_t max_block_bytes_ = 0;
  std::optional<uint64_t> frame_bytes_;
  // Of the last block that had such, which is one of the last two that were read.
  const ZstdHuffmanTable* huffman_ = nullptr;
  std::array<const ZstdStateTable*, kNumZstdCodes> states_{};
};

}  // namespace torchparquet::kernels
