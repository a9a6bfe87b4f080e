#include "pages/page_codec.h"

#include <arrow/result.h>
#include <arrow/util/compression.h>
#include <doctest/doctest.h>

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "bridge/format.h"
#include "caught.h"
#include "draws.h"
#include "exact_buffer.h"
#include "pages/libdeflate.h"
#include "recipes/blocks.h"

namespace torchparquet {
namespace {

using testing::Draws;
using testing::ExactBuffer;
using Bytes = std::vector<uint8_t>;

struct TestedCodec {
  int number;
  arrow::Compression::type arrows;
};

constexpr TestedCodec kCodecs[] = {{Codec::kSnappy, arrow::Compression::SNAPPY},
                                   {Codec::kLz4, arrow::Compression::LZ4},
                                   {Codec::kZstd, arrow::Compression::ZSTD},
                                   {Codec::kGzip, arrow::Compression::GZIP},
                                   {Codec::kBrotli, arrow::Compression::BROTLI}};

Bytes Compressed(arrow::Compression::type type, const Bytes& content) {
  const auto codec = arrow::util::Codec::Create(type).ValueOrDie();
  const auto num_bytes = static_cast<int64_t>(content.size());
  Bytes page(static_cast<size_t>(codec->MaxCompressedLen(num_bytes, content.data())));
  page.resize(static_cast<size_t>(
      codec->Compress(num_bytes, content.data(), std::ssize(page), page.data())
          .ValueOrDie()));
  return page;
}

Bytes Decompressed(PageCodec& codec, int type, const Bytes& page, size_t num_bytes) {
  ExactBuffer<uint8_t> in(page);
  ExactBuffer<uint8_t> out(num_bytes);
  codec.Decompress(type, in.span(), out.span());
  return out.Copy();
}

TEST_CASE("pages of every codec in turns") {
  Draws draws(1);
  PageCodec codec;
  for (int i = 0; i < 40; ++i) {
    for (const auto& [type, arrows] : kCodecs) {
      const Bytes content = testing::PageContent(draws, draws.Between(1, 20'000));
      const Bytes page = Compressed(arrows, content);
      CHECK((Decompressed(codec, type, page, content.size()) == content));
    }
  }
}

TEST_CASE("a page that is cut, or of another size, is an error; the next one is not") {
  Draws draws(2);
  PageCodec codec;
  const Bytes content = testing::PageContent(draws, 5000);
  for (const auto& [type, arrows] : kCodecs) {
    CAPTURE(CodecName(type));
    const Bytes page = Compressed(arrows, content);
    const Bytes cut(page.begin(), page.end() - 1);
    for (const auto& [bytes, size] :
         {std::pair{cut, content.size()}, std::pair{page, content.size() - 1},
          std::pair{page, content.size() + 1}}) {
      const auto error = testing::Caught([&] { Decompressed(codec, type, bytes, size); });
      REQUIRE(error);
      CHECK(error->kind() == ErrorKind::kCorruptFile);
      CHECK(testing::Mentions(*error, "decompress"));
    }
    CHECK((Decompressed(codec, type, page, content.size()) == content));
  }
}

TEST_CASE("pairs: the first page's damage is an error, the second's is told") {
  Draws draws(3);
  PageCodec codec;
  const Bytes content = testing::PageContent(draws, 9000);
  for (const auto& [type, arrows] : kCodecs) {
    if (!PageCodec::TakesPairs(type)) continue;
    const Bytes page = Compressed(arrows, content);
    const Bytes cut(page.begin(), page.end() - 1);
    Bytes out(content.size());
    Bytes other(content.size());
    CHECK(codec.DecompressPair(type, {page, out}, {page, other}));
    CHECK((out == content));
    CHECK((other == content));
    CHECK_FALSE(codec.DecompressPair(type, {page, out}, {cut, other}));
    CHECK((out == content));
    CHECK(testing::Throws(ErrorKind::kCorruptFile, [&] {
      codec.DecompressPair(type, {cut, out}, {page, other});
    }));
  }
}

TEST_CASE("of each damaged page of zstd comes what Arrow makes of it") {
  Draws draws(5);
  PageCodec codec;
  const auto arrow_codec =
      arrow::util::Codec::Create(arrow::Compression::ZSTD).ValueOrDie();
  const Bytes other = testing::PageContent(draws, 2000);
  const Bytes good = Compressed(arrow::Compression::ZSTD, other);
  int num_refused = 0;
  int num_served = 0;
  for (int i = 0; i < 1500; ++i) {
    CAPTURE(i);
    const Bytes content = testing::PageContent(draws, draws.Between(1, 5000));
    Bytes page = Compressed(arrow::Compression::ZSTD, content);
    page[static_cast<size_t>(draws.Below(std::ssize(page)))] ^=
        static_cast<uint8_t>(draws.Between(1, 255));
    Bytes expected(content.size());
    const auto written = arrow_codec->Decompress(std::ssize(page), page.data(),
                                                 std::ssize(expected), expected.data());
    const bool is_served = written.ok() && *written == std::ssize(expected);
    Bytes out(content.size());
    Bytes pair_out(content.size());
    Bytes other_out(other.size());
    const auto error =
        testing::Caught([&] { codec.Decompress(Codec::kZstd, page, out); });
    const auto pair_error = testing::Caught(
        [&] { codec.DecompressPair(Codec::kZstd, {page, pair_out}, {good, other_out}); });
    CHECK(error.has_value() == !is_served);
    CHECK(pair_error.has_value() == !is_served);
    if (is_served) CHECK((out == expected));
    if (is_served) CHECK((pair_out == expected));
    CHECK((other_out == other));
    ++(is_served ? num_served : num_refused);
  }
  CHECK(num_refused > 100);
  CHECK(num_served > 100);
}

TEST_CASE("a page of two gzip members") {
  Draws draws(4);
  const Bytes content = testing::PageContent(draws, 3000);
  const Bytes half = Compressed(arrow::Compression::GZIP, content);
  Bytes page = half;
  page.insert(page.end(), half.begin(), half.end());
  Bytes out(2 * content.size());
  if (Libdeflate::IsAvailable()) {
    Libdeflate libdeflate;
    CHECK_FALSE(libdeflate.Decompress(page, out));
    CHECK(libdeflate.Decompress(half, std::span(out).first(content.size())));
  }
  // Arrow's codec decides about the page, with or without libdeflate.
  PageCodec codec;
  const auto arrow_codec =
      arrow::util::Codec::Create(arrow::Compression::GZIP).ValueOrDie();
  const auto written =
      arrow_codec->Decompress(std::ssize(page), page.data(), std::ssize(out), out.data());
  const auto error = testing::Caught([&] { codec.Decompress(Codec::kGzip, page, out); });
  CHECK(error.has_value() == !(written.ok() && *written == std::ssize(out)));
}

}  // namespace
}  // namespace torchparquet
