#include <cstdint>
#include <utility>
#include <vector>

#include "encoders/arrow_blocks.h"
#include "encoders/block_elements.h"
#include "fuzz/inputs.h"
#include "fuzz/steps.h"
#include "fuzz/targets.h"
#include "recipes/blocks.h"

namespace torchparquet::testing {
namespace {

// A block by a compressor or of elements in any form, and the size of its content.
SizedBlock BlockInput(BlockCodec codec, Draws& draws) {
  if (draws.OneIn(2)) {
    const auto content = PageContent(draws, draws.Below(draws.OneIn(8) ? 60'000 : 500));
    return {ArrowCompress(codec, content), content.size()};
  }
  const auto elements = RandomElements(draws, draws.Below(draws.OneIn(8) ? 3000 : 20));
  return {EncodeBlock(codec, draws, elements), ContentOf(elements).size()};
}

SizedBlock DamagedBlock(Draws& draws, const SizedBlock& block) {
  return {Damaged(draws, block.bytes),
          draws.OneIn(12) ? static_cast<size_t>(draws.Below(2000)) : block.num_bytes};
}

bool CompareWithArrow(BlockCodec codec, const SizedBlock& block,
                      const SizedBlock& other) {
  const Content found = Decompressed(codec, block);
  const Content expected = ArrowDecompress(codec, block.bytes, block.num_bytes);
  Require(!found || found == expected, "another content than Arrow's");
  // Arrow's LZ4 takes an offset of 0, which the format forbids, and its zstd more damaged
  // frames.
  Require(codec != BlockCodec::kSnappy || found.has_value() == expected.has_value(),
          "an error where Arrow has none");
  const auto pair = DecompressedPair(codec, block, other);
  Require(pair[0] == found, "another content in a pair");
  Require(pair[1] == Decompressed(codec, other), "another second content in a pair");
  return !found.has_value();
}

bool FuzzBlocks(BlockCodec codec, Draws& draws) {
  const SizedBlock block = BlockInput(codec, draws);
  const SizedBlock other = BlockInput(codec, draws);
  bool is_refused = false;
  // A block takes longer to make than to read.
  const int64_t num_damages = block.bytes.size() < 1000 ? 32 : 1;
  for (int64_t i = 0; i < num_damages; ++i) {
    is_refused |=
        CompareWithArrow(codec, DamagedBlock(draws, block), DamagedBlock(draws, other));
  }
  return is_refused;
}

// Short frames by every level of the compressor, and in the forms that the encoder makes.
// They take longer to make than to read, so there is one pool of them.
std::vector<SizedBlock> MadeZstdPool() {
  constexpr int64_t kMaxBytes = 4096;
  Draws draws(1);
  std::vector<SizedBlock> pool;
  for (int level = -7; level <= 22; ++level) {
    for (int i = 0; i < 24; ++i) {
      const auto content = PageContent(draws, draws.Below(kMaxBytes));
      pool.push_back({ArrowCompressZstd(level, content), content.size()});
    }
  }
  while (pool.size() < 2000) {
    const auto elements = RandomElements(draws, draws.Below(60));
    SizedBlock block{EncodeBlock(BlockCodec::kZstd, draws, elements),
                     ContentOf(elements).size()};
    if (block.num_bytes <= kMaxBytes) pool.push_back(std::move(block));
  }
  return pool;
}

bool FuzzShortZstd(Draws& draws) {
  static const std::vector<SizedBlock> pool = MadeZstdPool();
  const auto drawn = [&] {
    return DamagedBlock(draws, pool[static_cast<size_t>(draws.Below(std::ssize(pool)))]);
  };
  const SizedBlock block = drawn();
  return CompareWithArrow(BlockCodec::kZstd, block, drawn());
}

bool FuzzSnappy(Draws& draws) { return FuzzBlocks(BlockCodec::kSnappy, draws); }
bool FuzzLz4(Draws& draws) { return FuzzBlocks(BlockCodec::kLz4, draws); }
bool FuzzZstd(Draws& draws) { return FuzzBlocks(BlockCodec::kZstd, draws); }

}  // namespace

std::vector<FuzzTarget> CodecTargets() {
  return {{"snappy", &FuzzSnappy},
          {"lz4", &FuzzLz4},
          {"zstd", &FuzzZstd},
          {"zstd, short", &FuzzShortZstd}};
}

}  // namespace torchparquet::testing
