#include "pages/page_codec.h"

#include <arrow/result.h>
#include <arrow/status.h>
#include <arrow/util/compression.h>
#include <parquet/types.h>

#include <string>

#include "errors.h"
#include "kernels/codecs/lz4.h"
#include "kernels/codecs/snappy.h"

namespace torchparquet {
namespace {

void CheckDecompressed(const arrow::Status& status) {
  if (!status.ok())
    throw CorruptFile("page cannot be decompressed: " + Printable(status.message()));
}

// Of a block that one of our kernels has decompressed.
void CheckGood(int codec, bool good) {
  if (good) return;
  throw CorruptFile("page cannot be decompressed: its " + CodecName(codec) +
                    " block is damaged, or its content is of another size");
}

void CheckSize(int64_t found, size_t wanted) {
  if (found != static_cast<int64_t>(wanted)) {
    throw CorruptFile("page decompresses to " + std::to_string(found) +
                      " bytes instead of " + std::to_string(wanted));
  }
}

}  // namespace

std::string CodecName(int codec) {
  const auto type = static_cast<parquet::Compression::type>(codec);
  switch (type) {
    case parquet::Compression::LZ4:
    case parquet::Compression::LZ4_FRAME:
    case parquet::Compression::LZ4_HADOOP:
      return "lz4";  // in either frame
    default:
      return arrow::util::Codec::GetCodecAsString(type);
  }
}

PageCodec::PageCodec() = default;
PageCodec::~PageCodec() = default;

void PageCodec::Open(int codec) {
  if (codec == codec_type_) return;
  codec_type_ = -1;
  decompressor_.reset();
  codec_ = parquet::GetCodec(static_cast<parquet::Compression::type>(codec));
  if (codec == parquet::Compression::ZSTD) {
    // Given a whole frame and room for all of it, zstd's streaming call decodes in one
    // go like its simple call does, but in a context that is kept.
    auto made = codec_->MakeDecompressor();
    CheckDecompressed(made.status());
    decompressor_ = *made;
  }
  codec_type_ = codec;
}

void PageCodec::Decompress(int codec, std::span<const uint8_t> bytes,
                           std::span<uint8_t> out) {
  if (codec == parquet::Compression::SNAPPY) {
    return CheckGood(codec, kernels::DecompressSnappy({bytes, out}));
  }
  // LZ4's own library is faster where most bytes are in long literals.
  if (codec == parquet::Compression::LZ4 &&
      GainsByPair(codec, std::ssize(bytes), std::ssize(out))) {
    return CheckGood(codec, kernels::DecompressLz4({bytes, out}));
  }
  // Arrow's codec reads several members too, and says what is damaged.
  if (codec == parquet::Compression::GZIP && Libdeflate::IsAvailable() &&
      libdeflate_.Decompress(bytes, out)) {
    return;
  }
  Open(codec);
  const auto num_bytes = static_cast<int64_t>(bytes.size());
  const auto capacity = static_cast<int64_t>(out.size());
  if (decompressor_ == nullptr) {
    const auto written =
        codec_->Decompress(num_bytes, bytes.data(), capacity, out.data());
    CheckDecompressed(written.status());
    CheckSize(*written, out.size());
    return;
  }
  CheckDecompressed(decompressor_->Reset());
  int64_t num_read = 0;
  int64_t num_written = 0;
  // A page is one frame as a rule, but may be several.
  while (num_read < num_bytes) {
    const auto step =
        decompressor_->Decompress(num_bytes - num_read, bytes.data() + num_read,
                                  capacity - num_written, out.data() + num_written);
    CheckDecompressed(step.status());
    num_read += step->bytes_read;
    num_written += step->bytes_written;
    if (step->bytes_read == 0 && step->bytes_written == 0) break;
    if (decompressor_->IsFinished() && num_read < num_bytes) {
      CheckDecompressed(decompressor_->Reset());
    }
  }
  if (num_read < num_bytes || !decompressor_->IsFinished()) {
    throw CorruptFile(
        "page cannot be decompressed: its content does not end with the page");
  }
  CheckSize(num_written, out.size());
}

bool PageCodec::TakesPairs(int codec) {
  return codec == parquet::Compression::SNAPPY || codec == parquet::Compression::LZ4;
}

bool PageCodec::GainsByPair(int codec, int64_t compressed_bytes, int64_t num_bytes) {
  // Compressors of Snappy write short elements sooner than those of LZ4.
  const int64_t least_percent = codec == parquet::Compression::SNAPPY ? 1 : 10;
  return TakesPairs(codec) &&
         num_bytes - compressed_bytes > compressed_bytes / 100 * least_percent;
}

bool PageCodec::DecompressPair(int codec, const kernels::CompressedBlock& first,
                               const kernels::CompressedBlock& second) {
  const auto good = codec == parquet::Compression::SNAPPY
                        ? kernels::DecompressSnappyPair(first, second)
                        : kernels::DecompressLz4Pair(first, second);
  CheckGood(codec, good[0]);
  return good[1];
}

}  // namespace torchparquet
