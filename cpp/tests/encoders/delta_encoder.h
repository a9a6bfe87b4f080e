#pragma once

#include <algorithm>
#include <bit>
#include <cstdint>
#include <type_traits>
#include <vector>

namespace torchparquet::testing {

// Encodes DELTA_BINARY_PACKED values bit by bit, as parquet-format's Encodings.md
// describes them, in the shapes that writers differ in.
template <typename T>
class DeltaEncoder {
 public:
  int64_t block_values = 128;
  int64_t num_miniblocks = 4;
  // Stands for bit widths that no value needs.
  uint8_t unused_width = 0;
  // True if the last miniblock is filled up to its full size.
  bool padded = true;
  // Smallest bit width of a miniblock, for widths that its deltas do not need.
  int least_width = 0;

  std::vector<uint8_t> Encode(const std::vector<T>& values) {
    bytes_.clear();
    AppendVarint(static_cast<uint64_t>(block_values));
    AppendVarint(static_cast<uint64_t>(num_miniblocks));
    AppendVarint(values.size());
    AppendZigZag(values.empty() ? T{0} : values.front());
    std::vector<T> deltas;
    for (size_t i = 1; i < values.size(); ++i) {
      deltas.push_back(static_cast<T>(values[i] - values[i - 1]));
    }
    for (size_t i = 0; i < deltas.size(); i += static_cast<size_t>(block_values)) {
      const size_t count = std::min(deltas.size() - i, static_cast<size_t>(block_values));
      AppendBlock({deltas.begin() + static_cast<int64_t>(i),
                   deltas.begin() + static_cast<int64_t>(i + count)});
    }
    return bytes_;
  }

 private:
  using Signed = std::make_signed_t<T>;

  void AppendVarint(uint64_t value) {
    for (; value >= 0x80; value >>= 7) {
      bytes_.push_back(static_cast<uint8_t>(value | 0x80));
    }
    bytes_.push_back(static_cast<uint8_t>(value));
  }

  void AppendZigZag(T value) {
    const auto widened = static_cast<int64_t>(static_cast<Signed>(value));
    AppendVarint(widened < 0 ? ~static_cast<uint64_t>(widened) * 2 + 1
                             : static_cast<uint64_t>(widened) * 2);
  }

  void AppendBlock(std::vector<T> deltas) {
    T least = deltas.front();
    for (const T delta : deltas) {
      if (static_cast<Signed>(delta) < static_cast<Signed>(least)) least = delta;
    }
    AppendZigZag(least);
    for (T& delta : deltas) delta = static_cast<T>(delta - least);
    const auto miniblock_values = static_cast<size_t>(block_values / num_miniblocks);
    const size_t widths_at = bytes_.size();
    bytes_.resize(widths_at + static_cast<size_t>(num_miniblocks), unused_width);
    for (size_t begin = 0; begin < deltas.size(); begin += miniblock_values) {
      const size_t end = std::min(begin + miniblock_values, deltas.size());
      T all = 0;
      for (size_t i = begin; i < end; ++i) all |= deltas[i];
      const int width = std::max(static_cast<int>(std::bit_width(all)), least_width);
      bytes_[widths_at + begin / miniblock_values] = static_cast<uint8_t>(width);
      std::vector<T> packed(deltas.begin() + static_cast<int64_t>(begin),
                            deltas.begin() + static_cast<int64_t>(end));
      if (padded) packed.resize(miniblock_values);
      AppendPacked(packed, width);
    }
  }

  void AppendPacked(const std::vector<T>& values, int width) {
    const size_t begin = bytes_.size();
    bytes_.resize(begin + (values.size() * static_cast<size_t>(width) + 7) / 8);
    size_t position = 8 * begin;
    for (const T value : values) {
      for (int bit = 0; bit < width; ++bit, ++position) {
        const auto mask = static_cast<uint8_t>(((value >> bit) & 1) << (position % 8));
        bytes_[position / 8] = static_cast<uint8_t>(bytes_[position / 8] | mask);
      }
    }
  }

  std::vector<uint8_t> bytes_;
};

}  // namespace torchparquet::testing
