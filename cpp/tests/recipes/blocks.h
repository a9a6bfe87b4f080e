#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "draws.h"
#include "encoders/arrow_blocks.h"
#include "encoders/block_elements.h"
#include "encoders/zstd_encoder.h"
#include "exact_buffer.h"
#include "kernels/codecs/lz4.h"
#include "kernels/codecs/snappy.h"
#include "kernels/codecs/zstd.h"

namespace torchparquet::testing {

// A block and the size that its content is said to have.
struct SizedBlock {
  std::vector<uint8_t> bytes;
  size_t num_bytes = 0;
};

using Content = std::optional<std::vector<uint8_t>>;

// Writes elements in a form that `draws` choose.
inline std::vector<uint8_t> EncodeBlock(BlockCodec codec, Draws& draws,
                                        const std::vector<BlockElement>& elements) {
  if (codec == BlockCodec::kZstd) return ZstdEncoder(draws).Frame(elements);
  return codec == BlockCodec::kSnappy ? EncodeSnappy(draws, elements)
                                      : EncodeLz4(elements);
}

// Of all tests, since a page must not depend on the pages before it.
inline kernels::ZstdDecoder& Zstd() {
  static kernels::ZstdDecoder decoder;
  return decoder;
}

// Our decompression, into memory of exactly that size.
inline Content Decompressed(BlockCodec codec, const SizedBlock& block) {
  ExactBuffer<uint8_t> in(block.bytes);
  ExactBuffer<uint8_t> out(block.num_bytes);
  const kernels::CompressedBlock one{in.span(), out.span()};
  const bool good = codec == BlockCodec::kSnappy ? kernels::DecompressSnappy(one)
                    : codec == BlockCodec::kLz4  ? kernels::DecompressLz4(one)
                                                 : Zstd().Decompress(one);
  return good ? Content(out.Copy()) : std::nullopt;
}

// The same of two blocks at once.
inline std::array<Content, 2> DecompressedPair(BlockCodec codec, const SizedBlock& first,
                                               const SizedBlock& second) {
  ExactBuffer<uint8_t> in(first.bytes);
  ExactBuffer<uint8_t> other_in(second.bytes);
  ExactBuffer<uint8_t> out(first.num_bytes);
  ExactBuffer<uint8_t> other_out(second.num_bytes);
  const kernels::CompressedBlock one{in.span(), out.span()};
  const kernels::CompressedBlock other{other_in.span(), other_out.span()};
  const auto good = codec == BlockCodec::kSnappy
                        ? kernels::DecompressSnappyPair(one, other)
                    : codec == BlockCodec::kLz4 ? kernels::DecompressLz4Pair(one, other)
                                                : Zstd().DecompressPair(one, other);
  return {good[0] ? Content(out.Copy()) : std::nullopt,
          good[1] ? Content(other_out.Copy()) : std::nullopt};
}

// Contents like those of pages, of about `num_bytes` bytes.
inline std::vector<uint8_t> PageContent(Draws& draws, int64_t num_bytes) {
  std::vector<uint8_t> content;
  const auto put = [&](uint64_t number, int width) {
    for (int i = 0; i < width; ++i) {
      content.push_back(static_cast<uint8_t>(number >> (8 * i)));
    }
  };
  const int64_t kind = draws.Below(7);
  const int width = draws.OneIn(2) ? 8 : 4;
  const int64_t bound = draws.OneIn(2) ? 10 : 5000;
  uint64_t sorted = draws.Bits() >> 32;
  while (static_cast<int64_t>(content.size()) < num_bytes) {
    switch (kind) {
      case 0:  // small numbers
        put(static_cast<uint64_t>(draws.Below(bound)), width);
        break;
      case 1:  // sorted numbers
        put(sorted += static_cast<uint64_t>(draws.Below(bound)), width);
        break;
      case 2:  // incompressible
        put(draws.Bits(), 8);
        break;
      case 3:  // words of a text
        for (int64_t word = draws.Below(300) * 77; word > 0; word /= 5) {
          content.push_back(static_cast<uint8_t>('a' + word % 26));
        }
        content.push_back(' ');
        break;
      case 4:  // one value, with others between
        put(draws.OneIn(50) ? draws.Bits() : 7, width);
        break;
      case 5:  // few that recur, so that most bytes are in long literals
        put(draws.OneIn(6) ? 0x9e37'79b9'7f4a'7c15 * (1 + draws.Bits() % 8)
                           : draws.Bits(),
            8);
        break;
      default:  // wide numbers, of which only the low bytes differ
        put(0x3ff0'0000'0000'0000 | static_cast<uint64_t>(draws.Below(1 << 30)), 8);
    }
  }
  content.resize(static_cast<size_t>(num_bytes));
  return content;
}

}  // namespace torchparquet::testing
