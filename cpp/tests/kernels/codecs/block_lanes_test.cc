#include "kernels/codecs/block_lanes.h"

#include <doctest/doctest.h>

#include <array>
#include <cstdint>
#include <utility>
#include <vector>

#include "draws.h"
#include "encoders/arrow_blocks.h"
#include "encoders/block_elements.h"
#include "recipes/blocks.h"

namespace torchparquet::kernels {
namespace {

using testing::ArrowCompress;
using testing::ArrowDecompress;
using testing::BlockCodec;
using testing::BlockElement;
using testing::Content;
using testing::ContentOf;
using testing::Decompressed;
using testing::DecompressedPair;
using testing::Draws;
using testing::RandomBytes;
using testing::SizedBlock;
using Bytes = std::vector<uint8_t>;

constexpr BlockCodec kCodecs[] = {BlockCodec::kSnappy, BlockCodec::kLz4,
                                  BlockCodec::kZstd};

SizedBlock Compressed(BlockCodec codec, const Bytes& content) {
  return {ArrowCompress(codec, content), content.size()};
}

TEST_CASE("every size, alone and in pairs") {
  for (const BlockCodec codec : kCodecs) {
    Draws draws(1);
    for (int64_t num_bytes = 0; num_bytes < 600; ++num_bytes) {
      CAPTURE(num_bytes);
      const Bytes content = testing::PageContent(draws, num_bytes);
      const Bytes other = testing::PageContent(draws, draws.Below(3000));
      CHECK(Decompressed(codec, Compressed(codec, content)) == content);
      const auto pair =
          DecompressedPair(codec, Compressed(codec, content), Compressed(codec, other));
      CHECK(pair[0] == content);
      CHECK(pair[1] == other);
    }
  }
}

TEST_CASE("pages of every kind, alone and in pairs") {
  for (const BlockCodec codec : kCodecs) {
    Draws draws(2);
    for (int i = 0; i < 60; ++i) {
      CAPTURE(i);
      const Bytes content = testing::PageContent(draws, draws.Below(300'000));
      const Bytes other = testing::PageContent(draws, draws.Below(300'000));
      CHECK((Decompressed(codec, Compressed(codec, content)) == content));
      const auto pair =
          DecompressedPair(codec, Compressed(codec, content), Compressed(codec, other));
      CHECK((pair[0] == content));
      CHECK((pair[1] == other));
    }
  }
}

TEST_CASE("elements of every form") {
  for (const BlockCodec codec : kCodecs) {
    Draws draws(3);
    for (int i = 0; i < 1500; ++i) {
      CAPTURE(i);
      const auto elements =
          testing::RandomElements(draws, draws.Below(i % 10 == 0 ? 3000 : 60));
      const Bytes content = ContentOf(elements);
      const SizedBlock block{testing::EncodeBlock(codec, draws, elements),
                             content.size()};
      REQUIRE((ArrowDecompress(codec, block.bytes, content.size()) == content));
      CHECK((Decompressed(codec, block) == content));
      const auto pair = DecompressedPair(codec, block, block);
      CHECK((pair[0] == content));
      CHECK((pair[1] == content));
    }
  }
}

TEST_CASE("copies that overlap what they write, from every distance") {
  for (const BlockCodec codec : kCodecs) {
    Draws draws(4);
    for (size_t offset = 1; offset <= 64; ++offset) {
      for (size_t copy_bytes = 4; copy_bytes <= 70; ++copy_bytes) {
        CAPTURE(offset);
        CAPTURE(copy_bytes);
        std::vector<BlockElement> elements;
        for (int i = 0; i < 4; ++i) {
          elements.push_back(
              {.literals = RandomBytes(draws, i == 0 ? 64 : draws.Below(20)),
               .offset = offset,
               .copy_bytes = copy_bytes});
        }
        elements.push_back({.literals = RandomBytes(draws, 130)});
        const Bytes content = ContentOf(elements);
        const SizedBlock block{testing::EncodeBlock(codec, draws, elements),
                               content.size()};
        CHECK((Decompressed(codec, block) == content));
        CHECK((DecompressedPair(codec, block, block)[1] == content));
      }
    }
  }
}

// A dozen short blocks with all forms of elements.
std::vector<SizedBlock> ShortBlocks(BlockCodec codec) {
  Draws draws(5);
  std::vector<SizedBlock> blocks;
  for (int i = 0; i < 12; ++i) {
    const auto elements = testing::RandomElements(draws, 2 + 6 * (i % 4));
    blocks.push_back(
        {testing::EncodeBlock(codec, draws, elements), ContentOf(elements).size()});
  }
  return blocks;
}

// Returns whether a match of an LZ4 block has the offset 0, as far as the block can be
// read. The format forbids it, but Arrow's library takes it and delivers any bytes.
bool HasZeroOffset(const Bytes& block) {
  size_t at = 0;
  const auto length_of = [&](size_t length) {
    if (length < 15) return length;
    for (bool more = true; more && at < block.size(); ++at) {
      length += block[at];
      more = block[at] == 255;
    }
    return length;
  };
  while (at < block.size()) {
    const size_t token = block[at++];
    at += length_of(token >> 4);
    if (at + 1 >= block.size()) return false;
    if (block[at] == 0 && block[at + 1] == 0) return true;
    at += 2;
    length_of(token & 15);
  }
  return false;
}

// The damaged block gives what Arrow makes of it, or an error; and leaves the other block
// of a pair alone.
void CheckDamaged(BlockCodec codec, const SizedBlock& damaged, const SizedBlock& good) {
  const Content found = Decompressed(codec, damaged);
  const Content expected = ArrowDecompress(codec, damaged.bytes, damaged.num_bytes);
  // Arrow's library has more of damaged frames: it does not look whether streams of
  // literals end where they should.
  const bool may_differ = codec == BlockCodec::kZstd && !found;
  const bool has_zero = codec == BlockCodec::kLz4 && HasZeroOffset(damaged.bytes);
  if (found || !(has_zero || may_differ)) CHECK((found == expected));
  if (has_zero) CHECK_FALSE(found);
  const auto content = Decompressed(codec, good);
  const auto pair = DecompressedPair(codec, damaged, good);
  CHECK((pair[0] == found));
  CHECK((pair[1] == content));
  const auto turned = DecompressedPair(codec, good, damaged);
  CHECK((turned[0] == content));
  CHECK((turned[1] == found));
}

TEST_CASE("every truncation, and every change of one byte") {
  for (const BlockCodec codec : kCodecs) {
    const auto blocks = ShortBlocks(codec);
    for (size_t i = 0; i < blocks.size(); ++i) {
      CAPTURE(i);
      const SizedBlock& block = blocks[i];
      for (size_t size = 0; size < block.bytes.size(); ++size) {
        CAPTURE(size);
        Bytes cut(block.bytes.begin(), block.bytes.begin() + static_cast<int64_t>(size));
        CHECK_FALSE(Decompressed(codec, {cut, block.num_bytes}));
        CheckDamaged(codec, {cut, block.num_bytes}, blocks[0]);
      }
      const size_t step = i < 4 ? 1 : 37;  // all bytes of some, a few of the others
      for (size_t at = 0; at < block.bytes.size(); ++at) {
        CAPTURE(at);
        Bytes changed = block.bytes;
        for (size_t change = 1; change < 256; change += step) {
          changed[at] = static_cast<uint8_t>(block.bytes[at] ^ change);
          CheckDamaged(codec, {changed, block.num_bytes}, blocks[0]);
        }
      }
    }
  }
}

// Long enough for the loops that are chosen by what a block is like.
TEST_CASE("changes of one byte in long blocks of every kind") {
  for (const BlockCodec codec : kCodecs) {
    Draws draws(8);
    for (int i = 0; i < 24; ++i) {
      CAPTURE(i);
      const SizedBlock block = Compressed(codec, testing::PageContent(draws, 20'000));
      const SizedBlock good = Compressed(codec, testing::PageContent(draws, 20'000));
      for (int change = 0; change < 40; ++change) {
        Bytes changed = block.bytes;
        const auto at = static_cast<size_t>(draws.Below(std::ssize(changed)));
        CAPTURE(at);
        changed[at] ^= static_cast<uint8_t>(draws.Between(1, 255));
        CheckDamaged(codec, {changed, block.num_bytes}, good);
      }
    }
  }
}

TEST_CASE("a size that is not the content's is an error") {
  for (const BlockCodec codec : kCodecs) {
    Draws draws(6);
    for (const int64_t num_bytes : {1, 20, 97, 5000}) {
      SizedBlock block = Compressed(codec, testing::PageContent(draws, num_bytes));
      for (const int64_t more : {-1, 1, 16, 100}) {
        CAPTURE(num_bytes);
        CAPTURE(more);
        if (num_bytes + more < 0) continue;
        const SizedBlock lying{block.bytes, static_cast<size_t>(num_bytes + more)};
        CHECK_FALSE(Decompressed(codec, lying));
        CHECK_FALSE(DecompressedPair(codec, lying, block)[0]);
      }
    }
  }
}

// A long block, so that the offset is met by the loop as well as near the ends.
TEST_CASE("offsets that lead out of the block, at every place") {
  for (const BlockCodec codec : kCodecs) {
    Draws draws(7);
    auto elements = testing::RandomElements(draws, 400);
    const size_t content_bytes = ContentOf(elements).size();
    size_t position = 0;
    for (size_t i = 0; i + 1 < elements.size(); ++i) {
      CAPTURE(i);
      BlockElement& element = elements[i];
      position += element.literals.size();
      for (const size_t offset : {size_t{0}, position + 1, size_t{65'535}}) {
        if (offset != 0 && offset <= position) continue;
        // Not a number of the format.
        if (offset == 0 && codec == BlockCodec::kZstd) continue;
        const size_t kept = std::exchange(element.offset, offset);
        const SizedBlock block{testing::EncodeBlock(codec, draws, elements),
                               content_bytes};
        element.offset = kept;
        CHECK_FALSE(Decompressed(codec, block));
        CHECK_FALSE(DecompressedPair(codec, block, block)[1]);
      }
      position += element.copy_bytes;
    }
  }
}

TEST_CASE("no content is one byte, which is 0") {
  for (int byte = 0; byte < 256; ++byte) {
    const Bytes block = {static_cast<uint8_t>(byte)};
    CAPTURE(byte);
    CHECK(Decompressed(BlockCodec::kLz4, {block, 0}).has_value() == (byte == 0));
    CHECK(ArrowDecompress(BlockCodec::kLz4, block, 0).has_value() == (byte == 0));
  }
}

}  // namespace
}  // namespace torchparquet::kernels
