#include "encoders/arrow_blocks.h"

#include <arrow/result.h>
#include <arrow/util/compression.h>

#include <array>
#include <memory>
#include <vector>

namespace torchparquet::testing {
namespace {

using arrow::util::Codec;

std::unique_ptr<Codec> Make(BlockCodec codec) {
  const auto type = codec == BlockCodec::kSnappy ? arrow::Compression::SNAPPY
                    : codec == BlockCodec::kLz4  ? arrow::Compression::LZ4
                                                 : arrow::Compression::ZSTD;
  return Codec::Create(type).ValueOrDie();
}

Codec& ArrowCodec(BlockCodec codec) {
  static const std::array codecs = {Make(BlockCodec::kSnappy), Make(BlockCodec::kLz4),
                                    Make(BlockCodec::kZstd)};
  return *codecs[static_cast<size_t>(codec)];
}

std::vector<uint8_t> Compressed(Codec& codec, std::span<const uint8_t> content) {
  const auto num_bytes = static_cast<int64_t>(content.size());
  std::vector<uint8_t> block(
      static_cast<size_t>(codec.MaxCompressedLen(num_bytes, content.data())));
  block.resize(
      static_cast<size_t>(codec
                              .Compress(num_bytes, content.data(),
                                        static_cast<int64_t>(block.size()), block.data())
                              .ValueOrDie()));
  return block;
}

}  // namespace

std::vector<uint8_t> ArrowCompress(BlockCodec codec, std::span<const uint8_t> content) {
  return Compressed(ArrowCodec(codec), content);
}

std::vector<uint8_t> ArrowCompressZstd(int level, std::span<const uint8_t> content) {
  return Compressed(*Codec::Create(arrow::Compression::ZSTD, level).ValueOrDie(),
                    content);
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
