#pragma once

#include <algorithm>
#include <cstdint>
#include <iterator>
#include <vector>

#include "draws.h"

namespace torchparquet::testing {

// Literals followed by a copy from `offset` bytes before; a last element has no copy.
struct BlockElement {
  std::vector<uint8_t> literals;
  size_t offset = 0;
  size_t copy_bytes = 0;
};

// The content that elements stand for, byte by byte.
inline std::vector<uint8_t> ContentOf(const std::vector<BlockElement>& elements) {
  std::vector<uint8_t> content;
  for (const BlockElement& element : elements) {
    content.insert(content.end(), element.literals.begin(), element.literals.end());
    for (size_t i = 0; i < element.copy_bytes; ++i) {
      const uint8_t byte = content[content.size() - element.offset];
      content.push_back(byte);
    }
  }
  return content;
}

// Writes elements in every form that the formats have, also those that no compressor
// chooses, by `draws`.
inline std::vector<uint8_t> EncodeSnappy(Draws& draws,
                                         const std::vector<BlockElement>& elements) {
  std::vector<uint8_t> block;
  const auto put = [&](uint64_t number, int64_t num_bytes) {
    for (int64_t i = 0; i < num_bytes; ++i) {
      block.push_back(static_cast<uint8_t>(number >> (8 * i)));
    }
  };
  uint64_t length = 0;
  for (const BlockElement& element : elements) {
    length += element.literals.size() + element.copy_bytes;
  }
  for (; length >= 0x80; length >>= 7) put(length | 0x80, 1);
  put(length, 1);
  for (const BlockElement& element : elements) {
    if (!element.literals.empty()) {
      const uint64_t less_one = element.literals.size() - 1;
      int64_t num_bytes = 0;
      while (num_bytes < 4 && (less_one >> (8 * num_bytes)) != 0) ++num_bytes;
      if (less_one < 60 && !draws.OneIn(8)) {
        put(less_one << 2, 1);
      } else {
        num_bytes = draws.Between(std::max<int64_t>(1, num_bytes), 4);
        put(static_cast<uint64_t>(59 + num_bytes) << 2, 1);
        put(less_one, num_bytes);
      }
      std::copy(element.literals.begin(), element.literals.end(),
                std::back_inserter(block));
    }
    for (size_t left = element.copy_bytes; left > 0;) {
      const size_t count = std::min<size_t>(left, 64);
      left -= count;
      if (count >= 4 && count <= 11 && element.offset < 2048 && !draws.OneIn(4)) {
        put(1 | (count - 4) << 2 | (element.offset >> 8) << 5, 1);
        put(element.offset, 1);
        continue;
      }
      const bool is_wide = element.offset > 0xffff || draws.OneIn(16);
      put((is_wide ? 3 : 2) | (count - 1) << 2, 1);
      put(element.offset, is_wide ? 4 : 2);
    }
  }
  return block;
}

// Offsets below 65,536, copies of at least 4 bytes, and at least 12 literals at the end.
inline std::vector<uint8_t> EncodeLz4(const std::vector<BlockElement>& elements) {
  std::vector<uint8_t> block;
  const auto put_more = [&](size_t length) {
    if (length < 15) return;
    size_t rest = length - 15;
    for (; rest >= 255; rest -= 255) block.push_back(255);
    block.push_back(static_cast<uint8_t>(rest));
  };
  for (const BlockElement& element : elements) {
    const size_t num_literals = element.literals.size();
    const size_t match = element.copy_bytes > 0 ? element.copy_bytes - 4 : 0;
    block.push_back(static_cast<uint8_t>(std::min<size_t>(num_literals, 15) << 4 |
                                         std::min<size_t>(match, 15)));
    put_more(num_literals);
    std::copy(element.literals.begin(), element.literals.end(),
              std::back_inserter(block));
    if (element.copy_bytes == 0) break;
    block.push_back(static_cast<uint8_t>(element.offset));
    block.push_back(static_cast<uint8_t>(element.offset >> 8));
    put_more(match);
  }
  return block;
}

// Elements of a length that is mostly short, with offsets that are mostly near.
inline std::vector<BlockElement> RandomElements(Draws& draws, int64_t num_elements) {
  std::vector<BlockElement> elements;
  size_t position = 0;
  // Blocks of one manner, since decoders choose by what they have seen.
  const int64_t max_literals = draws.OneIn(3) ? 40 : draws.Between(1, 8);
  const int64_t max_copy = draws.OneIn(4) ? 80 : draws.Between(4, 12);
  const int64_t max_offset = draws.OneIn(2) ? 24 : 60'000;
  for (int64_t i = 0; i < num_elements; ++i) {
    BlockElement element;
    const int64_t least = position == 0 ? 1 : 0;
    const int64_t most = draws.OneIn(200) ? 700 : max_literals;
    element.literals = RandomBytes(draws, draws.Between(least, most));
    position += element.literals.size();
    element.offset = static_cast<size_t>(
        draws.Between(1, std::min<int64_t>(static_cast<int64_t>(position), max_offset)));
    element.copy_bytes =
        static_cast<size_t>(draws.Between(4, draws.OneIn(200) ? 900 : max_copy));
    position += element.copy_bytes;
    elements.push_back(std::move(element));
  }
  elements.push_back({.literals = RandomBytes(draws, draws.Between(12, 40))});
  return elements;
}

}  // namespace torchparquet::testing
