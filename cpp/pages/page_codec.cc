#include "pages/page_codec.h"

#include <array>
#include <iterator>
#include <memory>
#include <optional>
#include <string>

#include "base/errors.h"
#include "bridge/loaded_library.h"
#include "kernels/codecs/lz4.h"
#include "kernels/codecs/snappy.h"

namespace torchparquet {
namespace {

// Of a block that one of our kernels has decompressed.
void CheckGood(int codec, bool good) {
  if (good) return;
  throw CorruptFile("page cannot be decompressed: its ", CodecName(codec),
                    " block is damaged, or its content is of another size");
}

void CheckSize(int64_t found, size_t wanted) {
  if (found != static_cast<int64_t>(wanted)) {
    throw CorruptFile("page decompresses to ", found, " bytes instead of ", wanted);
  }
}

}  // namespace

std::string CodecName(int codec) {
  // LZ4 is so called in either frame.
  static constexpr std::array<const char*, 8> kNames = {
      "uncompressed", "snappy", "gzip", "lzo", "brotli", "lz4", "zstd", "lz4"};
  const bool is_known = codec >= 0 && codec < std::ssize(kNames);
  return is_known ? kNames[static_cast<size_t>(codec)] : "unknown";
}

void PageCodec::Open(int codec) {
  if (codec == codec_type_) return;
  codec_type_ = Codec::kUnknown;
  Check(Arrow().OpenCodec(codec, &codec_));
  codec_type_ = codec;
}

kernels::ZstdDecoder& PageCodec::Zstd() {
  if (!zstd_) zstd_ = std::make_unique<kernels::ZstdDecoder>();
  return *zstd_;
}

// Returns false for bytes that are no such blocks, or are damaged.
bool PageCodec::DecompressHadoopLz4(std::span<const uint8_t> bytes,
                                    std::span<uint8_t> out) {
  Open(Codec::kLz4);
  const auto take_size = [&]() -> std::optional<size_t> {
    if (bytes.size() < 4) return std::nullopt;
    size_t size = 0;
    for (const uint8_t byte : bytes.first(4)) size = size << 8 | byte;
    bytes = bytes.subspan(4);
    return size;
  };
  while (!bytes.empty()) {
    const auto block_bytes = take_size();
    if (!block_bytes || *block_bytes > out.size()) return false;
    std::span<uint8_t> block = out.first(*block_bytes);
    out = out.subspan(*block_bytes);
    while (!block.empty()) {
      const auto part_bytes = take_size();
      if (!part_bytes || *part_bytes > bytes.size()) return false;
      int64_t num_written = 0;
      const Failure failure =
          codec_->Decompress(bytes.first(*part_bytes), block, &num_written);
      if (failure.kind == Failure::Kind::kFailed) return false;
      Check(failure);
      bytes = bytes.subspan(*part_bytes);
      block = block.subspan(static_cast<size_t>(num_written));
    }
  }
  return out.empty();
}

void PageCodec::Decompress(int codec, std::span<const uint8_t> bytes,
                           std::span<uint8_t> out) {
  if (codec == Codec::kSnappy) {
    return CheckGood(codec, kernels::DecompressSnappy({bytes, out}));
  }
  if (codec == Codec::kLz4) return CheckGood(codec, kernels::DecompressLz4({bytes, out}));
  // Arrow's codec serves what ours does not, and says what is damaged.
  if (codec == Codec::kZstd && Zstd().Decompress({bytes, out})) return;
  // Arrow's codec reads several members too, and says what is damaged.
  if (codec == Codec::kGzip && Libdeflate::IsAvailable() &&
      libdeflate_.Decompress(bytes, out)) {
    return;
  }
  if (codec == Codec::kLz4Hadoop && DecompressHadoopLz4(bytes, out)) return;
  Open(codec);
  int64_t num_written = 0;
  const Failure failure = codec_->Decompress(bytes, out, &num_written);
  if (failure.kind == Failure::Kind::kFailed) {
    throw CorruptFile("page cannot be decompressed: ", Printable(failure.message));
  }
  Check(failure);
  CheckSize(num_written, out.size());
}

bool PageCodec::TakesPairs(int codec) {
  return codec == Codec::kSnappy || codec == Codec::kLz4 || codec == Codec::kZstd;
}

bool PageCodec::GainsByPair(int codec, int64_t compressed_bytes, int64_t num_bytes) {
  return TakesPairs(codec) && num_bytes - compressed_bytes > compressed_bytes / 100;
}

bool PageCodec::DecompressPair(int codec, const kernels::CompressedBlock& first,
                               const kernels::CompressedBlock& second) {
  if (codec == Codec::kZstd) {
    const auto good = Zstd().DecompressPair(first, second);
    if (!good[0]) Decompress(codec, first.bytes, first.out);
    return good[1];
  }
  const auto good = codec == Codec::kSnappy ? kernels::DecompressSnappyPair(first, second)
                                            : kernels::DecompressLz4Pair(first, second);
  CheckGood(codec, good[0]);
  return good[1];
}

}  // namespace torchparquet
