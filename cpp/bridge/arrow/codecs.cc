#include <arrow/result.h>
#include <arrow/util/compression.h>
#include <parquet/types.h>

#include <utility>

#include "bridge/arrow/guard.h"
#include "bridge/arrow/parts.h"

namespace torchparquet::bridge {
namespace {

using parquet::Compression;

constexpr std::pair<int, Compression::type> kCodecs[] = {
    {Codec::kNone, Compression::UNCOMPRESSED},
    {Codec::kSnappy, Compression::SNAPPY},
    {Codec::kGzip, Compression::GZIP},
    {Codec::kLzo, Compression::LZO},
    {Codec::kBrotli, Compression::BROTLI},
    {Codec::kLz4Hadoop, Compression::LZ4_HADOOP},
    {Codec::kZstd, Compression::ZSTD},
    {Codec::kLz4, Compression::LZ4},
};

Compression::type ArrowsNumber(int codec) {
  for (const auto& [number, arrows] : kCodecs) {
    if (number == codec) return arrows;
  }
  throw parquet::ParquetException("unknown codec");
}

class WholePages : public ArrowCodec {
 public:
  explicit WholePages(std::unique_ptr<arrow::util::Codec> codec)
      : codec_(std::move(codec)) {}

  Failure Decompress(std::span<const uint8_t> bytes, std::span<uint8_t> out,
                     int64_t* num_written) override {
    const auto written =
        codec_->Decompress(static_cast<int64_t>(bytes.size()), bytes.data(),
                           static_cast<int64_t>(out.size()), out.data());
    if (written.ok()) *num_written = *written;
    return FailureOf(written.status());
  }

 private:
  std::unique_ptr<arrow::util::Codec> codec_;
};

// Given a whole frame and room for all of it, zstd's streaming call decodes in one go
// like its simple call does, but in a context that is kept.
class Frames : public ArrowCodec {
 public:
  explicit Frames(std::shared_ptr<arrow::util::Decompressor> frames)
      : frames_(std::move(frames)) {}

  Failure Decompress(std::span<const uint8_t> bytes, std::span<uint8_t> out,
                     int64_t* num_written) override {
    if (auto failure = FailureOf(frames_->Reset())) return failure;
    const auto num_bytes = static_cast<int64_t>(bytes.size());
    const auto capacity = static_cast<int64_t>(out.size());
    int64_t read = 0;
    int64_t written = 0;
    // A page is one frame as a rule, but may be several.
    while (read < num_bytes) {
      const auto step = frames_->Decompress(num_bytes - read, bytes.data() + read,
                                            capacity - written, out.data() + written);
      if (auto failure = FailureOf(step.status())) return failure;
      read += step->bytes_read;
      written += step->bytes_written;
      if (step->bytes_read == 0 && step->bytes_written == 0) break;
      if (!frames_->IsFinished() || read == num_bytes) continue;
      if (auto failure = FailureOf(frames_->Reset())) return failure;
    }
    if (read < num_bytes || !frames_->IsFinished()) {
      return {Failure::Kind::kFailed, "its content does not end with the page"};
    }
    *num_written = written;
    return {};
  }

 private:
  std::shared_ptr<arrow::util::Decompressor> frames_;
};

}  // namespace

bool HasCodec(int codec) {
  for (const auto& [number, arrows] : kCodecs) {
    if (number == codec) return parquet::IsCodecSupported(arrows);
  }
  return false;
}

Failure OpenCodec(int codec, std::unique_ptr<ArrowCodec>* opened) {
  return Guard([&] {
    auto whole = parquet::GetCodec(ArrowsNumber(codec));
    if (codec == Codec::kZstd) {
      auto frames = whole->MakeDecompressor();
      if (!frames.ok()) throw parquet::ParquetStatusException(frames.status());
      *opened = std::make_unique<Frames>(*frames);
    } else {
      *opened = std::make_unique<WholePages>(std::move(whole));
    }
  });
}

int NumberOfCodec(int arrow_codec) {
  for (const auto& [number, arrows] : kCodecs) {
    if (arrows == arrow_codec) return number;
  }
  return Codec::kUnknown;
}

}  // namespace torchparquet::bridge
