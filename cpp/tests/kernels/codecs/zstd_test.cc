#include "kernels/codecs/zstd.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <cstdint>
#include <vector>

#include "draws.h"
#include "encoders/arrow_blocks.h"
#include "encoders/block_elements.h"
#include "kernels/xxhash64.h"
#include "recipes/blocks.h"

namespace torchparquet::kernels {
namespace {

using testing::ArrowDecompress;
using testing::BlockCodec;
using testing::Draws;
using testing::RandomBytes;
using testing::SizedBlock;
using Bytes = std::vector<uint8_t>;

constexpr int kLevels[] = {-5, 1, 3, 9, 19};

testing::Content Decompressed(const Bytes& page, size_t num_bytes) {
  return testing::Decompressed(BlockCodec::kZstd, {page, num_bytes});
}

// Whether Arrow's library and ours both have that content.
bool BothHave(const Bytes& page, const Bytes& content) {
  return ArrowDecompress(BlockCodec::kZstd, page, content.size()) == content &&
         Decompressed(page, content.size()) == content;
}
bool BothRefuse(const Bytes& page, size_t num_bytes) {
  return !ArrowDecompress(BlockCodec::kZstd, page, num_bytes) &&
         !Decompressed(page, num_bytes);
}

Bytes Joined(std::initializer_list<Bytes> parts) {
  Bytes all;
  for (const Bytes& part : parts) all.insert(all.end(), part.begin(), part.end());
  return all;
}

TEST_CASE("every level") {
  Draws draws(1);
  for (const int level : kLevels) {
    for (int i = 0; i < 12; ++i) {
      CAPTURE(level);
      CAPTURE(i);
      const Bytes content = testing::PageContent(draws, draws.Below(400'000));
      const Bytes other = testing::PageContent(draws, draws.Below(400'000));
      const SizedBlock page{testing::ArrowCompressZstd(level, content), content.size()};
      const SizedBlock next{testing::ArrowCompressZstd(level, other), other.size()};
      CHECK((testing::Decompressed(BlockCodec::kZstd, page) == content));
      const auto pair = testing::DecompressedPair(BlockCodec::kZstd, page, next);
      CHECK((pair[0] == content));
      CHECK((pair[1] == other));
    }
  }
}

TEST_CASE("short pages of every size and level") {
  Draws draws(2);
  for (const int level : kLevels) {
    for (int64_t num_bytes = 0; num_bytes <= 300; num_bytes += level == 19 ? 7 : 1) {
      CAPTURE(level);
      CAPTURE(num_bytes);
      const Bytes content = testing::PageContent(draws, num_bytes);
      CHECK((Decompressed(testing::ArrowCompressZstd(level, content), content.size()) ==
             content));
    }
  }
}

TEST_CASE("literals and copies of more than 65,535 bytes") {
  Draws draws(3);
  for (const size_t num_bytes : {65'535, 65'536, 70'000, 120'000}) {
    const Bytes content = RandomBytes(draws, 1000);
    const Bytes literals = RandomBytes(draws, static_cast<int64_t>(num_bytes));
    // A run, random bytes, and the begin once more.
    const Bytes all = Joined({content, Bytes(num_bytes, 7), literals, content, literals});
    for (const int level : kLevels) {
      CAPTURE(level);
      CHECK(BothHave(testing::ArrowCompressZstd(level, all), all));
    }
  }
}

TEST_CASE("several frames, and frames to be skipped, make a page") {
  Draws draws(4);
  const Bytes content = testing::PageContent(draws, 150'000);
  const Bytes other = testing::PageContent(draws, 700);
  const Bytes page = testing::ArrowCompressZstd(3, content);
  const Bytes next = testing::ArrowCompressZstd(9, other);
  const Bytes skipped = {0x53, 0x2A, 0x4D, 0x18, 3, 0, 0, 0, 9, 9, 9};
  CHECK(BothHave(Joined({page, next, next}), Joined({content, other, other})));
  CHECK(BothHave(Joined({skipped, page, skipped, skipped, next, skipped}),
                 Joined({content, other})));
  CHECK(BothHave(Joined({skipped, skipped}), {}));
  CHECK(BothRefuse(Joined({page, {0x53, 0x2A, 0x4D, 0x18, 3, 0, 0, 0, 9, 9}}),
                   content.size()));
  CHECK(BothRefuse(Joined({page, {0}}), content.size()));
  CHECK(BothRefuse(Joined({page, next}), content.size()));
}

TEST_CASE("offsets do not lead out of their frame") {
  Draws draws(5);
  const Bytes before = RandomBytes(draws, 100);
  std::vector<testing::BlockElement> elements(2);
  elements[0] = {.literals = RandomBytes(draws, 10), .offset = 50, .copy_bytes = 8};
  elements[1].literals = RandomBytes(draws, 20);
  const Bytes frame = testing::EncodeBlock(BlockCodec::kZstd, draws, elements);
  CHECK(BothRefuse(Joined({testing::ArrowCompressZstd(1, before), frame}), 138));
}

TEST_CASE("short copies by one offset, from the first byte on") {
  Draws draws(8);
  for (const size_t offset : {1, 2, 3, 4, 7, 8, 9, 15, 16, 17, 24}) {
    CAPTURE(offset);
    // Repeats of numbers, with a number of other lengths now and then.
    std::vector<testing::BlockElement> elements(3000);
    for (size_t i = 0; i < elements.size(); ++i) {
      const bool is_odd = i > 0 && draws.OneIn(90);
      const int64_t first = i == 0 ? static_cast<int64_t>(offset) : draws.Between(1, 7);
      elements[i].literals = RandomBytes(draws, is_odd ? draws.Below(40) : first);
      elements[i].offset = offset;
      elements[i].copy_bytes = static_cast<size_t>(draws.Between(3, is_odd ? 40 : 16));
    }
    const Bytes content = testing::ContentOf(elements);
    CHECK(BothHave(testing::EncodeBlock(BlockCodec::kZstd, draws, elements), content));
  }
}

TEST_CASE("checksums are compared") {
  Draws draws(6);
  for (const int64_t num_bytes : {1, 5000, 300'000}) {
    const Bytes content = testing::PageContent(draws, num_bytes);
    Bytes page = testing::ArrowCompressZstd(3, content);
    page[4] |= 1 << 2;
    const uint64_t hash = XxHash64(content);
    for (int i = 0; i < 4; ++i) page.push_back(static_cast<uint8_t>(hash >> (8 * i)));
    CHECK(BothHave(page, content));
    for (size_t i = page.size() - 4; i < page.size(); ++i) {
      Bytes changed = page;
      changed[i] ^= 1;
      CHECK(BothRefuse(changed, content.size()));
    }
    page.pop_back();
    CHECK(BothRefuse(page, content.size()));
  }
}

TEST_CASE("what a frame's header says counts") {
  Draws draws(7);
  const Bytes content = testing::PageContent(draws, 200);
  const Bytes page = testing::ArrowCompressZstd(3, content);
  for (size_t byte = 0; byte < 6; ++byte) {
    for (int bit = 0; bit < 8; ++bit) {
      Bytes changed = page;
      changed[byte] ^= static_cast<uint8_t>(1 << bit);
      const auto found = Decompressed(changed, content.size());
      if (found) {
        CHECK((found == ArrowDecompress(BlockCodec::kZstd, changed, content.size())));
      }
    }
  }
  CHECK_FALSE(Decompressed({}, 1));
}

// The largest weight is of the shortest code.
TEST_CASE("codes of literals have no weight that is larger than any code allows") {
  const Bytes page = {0x28, 0xB5, 0x2F, 0xFD, 0x00, 0x58, 0x85, 0x01, 0x00, 0x82,
                      0x00, 0x0B, 0x27, 0xE1, 0x39, 0xE8, 0x64, 0x55, 0x02, 0x00,
                      0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00,
                      0x00, 0x00, 0x00, 0x00, 0x86, 0x41, 0x55, 0x55, 0x55, 0xEF,
                      0xF5, 0xDF, 0x05, 0x28, 0xD7, 0xFF, 0xFF, 0xFF, 0xFF, 0xBF,
                      0x2B, 0x02, 0x63, 0x3C, 0x09, 0x04, 0x00};
  CHECK(BothRefuse(page, 8));
}

TEST_CASE("every truncation, and every change of one bit") {
  Draws draws(8);
  for (int i = 0; i < 12; ++i) {
    CAPTURE(i);
    const Bytes content = testing::PageContent(draws, 40 + int64_t{25} * i);
    const Bytes page =
        i % 2 == 0 ? testing::ArrowCompressZstd(kLevels[i % 5], content)
                   : testing::EncodeBlock(BlockCodec::kZstd, draws,
                                          testing::RandomElements(draws, int64_t{3} * i));
    const size_t num_bytes = i % 2 == 0 ? content.size() : [&] {
      size_t size = 0;
      while (!Decompressed(page, size)) ++size;
      return size;
    }();
    for (size_t size = 0; size < page.size(); ++size) {
      CHECK(BothRefuse(Bytes(page.begin(), page.begin() + static_cast<int64_t>(size)),
                       num_bytes));
    }
    for (size_t at = 0; at < 8 * page.size(); ++at) {
      CAPTURE(at);
      Bytes changed = page;
      changed[at / 8] ^= static_cast<uint8_t>(1 << (at % 8));
      const auto found = Decompressed(changed, num_bytes);
      if (found) {
        CHECK((found == ArrowDecompress(BlockCodec::kZstd, changed, num_bytes)));
      }
    }
  }
}

}  // namespace
}  // namespace torchparquet::kernels
