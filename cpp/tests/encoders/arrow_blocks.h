#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

namespace torchparquet::testing {

enum class BlockCodec { kSnappy, kLz4, kZstd };

// Arrow's codecs for blocks, as the oracle that shares no code with ours.
std::vector<uint8_t> ArrowCompress(BlockCodec codec, std::span<const uint8_t> content);
// By zstd, at that level.
std::vector<uint8_t> ArrowCompressZstd(int level, std::span<const uint8_t> content);
// Nothing if Arrow calls the block damaged, or its content is not of `num_bytes` bytes.
std::optional<std::vector<uint8_t>> ArrowDecompress(BlockCodec codec,
                                                    std::span<const uint8_t> block,
                                                    size_t num_bytes);

}  // namespace torchparquet::testing
