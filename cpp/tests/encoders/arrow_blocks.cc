#include "encoders/arrow_blocks.h"

#include <arrow/result.h>
#include <arrow/util/compression.h>

#include <memory>
#include <vector>

namespace torchparquet::testing {
namespace {

arrow::util::Codec& ArrowCodec(BlockCodec codec) {
  const auto make = [](arrow::Compression::type type) {
    return arrow::util::Codec::Create(type).ValueOrDie();
  };
  static const auto snappy = make(arrow::Compression::SNAPPY);
  static const auto lz4 = make(arrow::Compression::LZ4);
  return codec == BlockCodec::kSnappy ? *snappy : *lz4;
}

}  // namespace

std::vector<uint8_t> ArrowCompress(BlockCodec codec, std::span<const uint8_t> content) {
  arrow::util::Codec& arrow_codec = ArrowCodec(codec);
  const auto num_bytes = static_cast<int64_t>(content.size());
  std::vector<uint8_t> block(
      static_cast<size_t>(arrow_codec.MaxCompressedLen(num_bytes, content.data())));
  block.resize(
      static_cast<size_t>(arrow_codec
                              .Compress(num_bytes, content.data(),
                                        static_cast<int64_t>(block.size()), block.data())
                              .ValueOrDie()));
  return block;
}

std::optional<std::vector<uint8_t>> ArrowDecompress(BlockCodec codec,
                                                    std::span<const uint8_t> block,
                                                    size_t num_bytes) {
  // Not empty, so that it has an address.
  std::vector<uint8_t> content(num_bytes + 1);
  const auto result =
      ArrowCodec(codec).Decompress(static_cast<int64_t>(block.size()), block.data(),
                                   static_cast<int64_t>(num_bytes), content.data());
  if (!result.ok() || *result != static_cast<int64_t>(num_bytes)) return std::nullopt;
  content.pop_back();
  return content;
}

}  // namespace torchparquet::testing
