#pragma once

#include <algorithm>
#include <array>
#include <bit>
#include <cstdint>
#include <cstdlib>
#include <iterator>
#include <memory>
#include <set>
#include <span>
#include <utility>
#include <vector>

#include "draws.h"
#include "encoders/block_elements.h"
#include "kernels/codecs/zstd_tables.h"

namespace torchparquet::testing {

// Writes frames of zstd in every form that the format has, also those that no compressor
// chooses. States and codes come from our tables: were these wrong, Arrow's library would
// find another content.
class ZstdEncoder {
 public:
  using Bytes = std::vector<uint8_t>;

  explicit ZstdEncoder(Draws& draws) : draws_(draws) {}

  Bytes Frame(const std::vector<BlockElement>& elements) {
    // Blocks may be as long as the window, which may be as long as the content.
    if (draws_.OneIn(2) && TryFrame(elements, /*is_single=*/true)) return frame_;
    TryFrame(elements, /*is_single=*/false);
    return frame_;
  }

 private:
  static constexpr size_t kMaxBlock = size_t{128} << 10;

  // Returns false if a block is longer than the window.
  bool TryFrame(const std::vector<BlockElement>& elements, bool is_single) {
    constexpr size_t kPartBytes = 60'000;  // some become longer
    size_t num_bytes = 0;
    for (const BlockElement& element : elements) num_bytes += BytesOf(element);
    frame_.clear();
    Put(0xFD2FB528, 4);
    Put(2 << 6 | (is_single ? 1 << 5 : 0), 1);  // the size of the content in 4 bytes
    if (!is_single) Put(15 << 3, 1);            // a window of 32 MiB
    Put(num_bytes, 4);
    max_block_ = is_single ? std::min<size_t>(num_bytes, kMaxBlock) : kMaxBlock;
    offsets_ = {1, 4, 8};
    literal_code_.clear();
    has_tables_ = {};
    bool fits = true;
    for (size_t i = 0; i < elements.size();) {
      const int64_t most = draws_.Below(draws_.OneIn(3) ? 4 : 2000);
      std::vector<BlockElement> part;
      size_t part_bytes = 0;
      do {
        part_bytes += BytesOf(elements[i]);
        part.push_back(elements[i++]);
      } while (i < elements.size() && std::ssize(part) < most &&
               part_bytes + BytesOf(elements[i]) <= kPartBytes);
      fits = PutBlock(part, i == elements.size()) && fits;
    }
    return fits;
  }

  static size_t BytesOf(const BlockElement& element) {
    return element.literals.size() + element.copy_bytes;
  }

  struct BitGroup {
    uint64_t bits;
    int count;
  };
  // In the order in which they are read: from the end.
  using Bits = std::vector<BitGroup>;

  static void Append(Bytes* to, uint64_t number, size_t num_bytes) {
    for (size_t i = 0; i < num_bytes; ++i) {
      to->push_back(static_cast<uint8_t>(number >> (8 * i)));
    }
  }
  void Put(uint64_t number, size_t num_bytes) { Append(&frame_, number, num_bytes); }

  static Bytes Packed(const Bits& forward, bool has_end) {
    Bytes bytes;
    int at = 0;
    const auto put = [&](uint64_t bits, int count) {
      for (int i = 0; i < count; ++i, ++at) {
        if (at % 8 == 0) bytes.push_back(0);
        bytes.back() |= static_cast<uint8_t>((bits >> i & 1) << (at % 8));
      }
    };
    for (const BitGroup& group : forward) put(group.bits, group.count);
    if (has_end) put(1, 1);
    return bytes;
  }
  static Bytes PackedBackward(Bits bits) {
    std::ranges::reverse(bits);
    return Packed(bits, true);
  }

  bool PutBlock(const std::vector<BlockElement>& part, bool is_last) {
    enum : size_t { kRaw, kRepeated, kCompressed };
    const auto header = [&](size_t size, size_t type) {
      Put(size << 3 | type << 1 | (is_last ? 1 : 0), 3);
    };
    const Bytes literals = LiteralsOf(part);
    const bool has_copies = part.front().copy_bytes > 0;
    if (!has_copies && draws_.OneIn(2)) {
      const bool is_repeated =
          !literals.empty() &&
          std::ranges::count(literals, literals[0]) == std::ssize(literals);
      header(literals.size(), is_repeated ? kRepeated : kRaw);
      frame_.insert(frame_.end(), literals.begin(),
                    is_repeated ? literals.begin() + 1 : literals.end());
      return true;
    }
    Bytes content = Literals(literals);
    const Bytes sequences = Sequences(part);
    content.insert(content.end(), sequences.begin(), sequences.end());
    header(content.size(), kCompressed);
    frame_.insert(frame_.end(), content.begin(), content.end());
    return content.size() <= max_block_;
  }

  static Bytes LiteralsOf(const std::vector<BlockElement>& part) {
    Bytes literals;
    for (const BlockElement& element : part) {
      literals.insert(literals.end(), element.literals.begin(), element.literals.end());
    }
    return literals;
  }

  Bytes Literals(const Bytes& literals) {
    Bytes section;
    const size_t size = literals.size();
    const std::set<uint8_t> used(literals.begin(), literals.end());
    const bool is_repeated = used.size() == 1 && draws_.OneIn(2);
    if (size < 6 || is_repeated || draws_.OneIn(4)) {
      const uint64_t type = is_repeated ? 1 : 0;
      if (size < 32 && !draws_.OneIn(3)) {
        Append(&section, type | size << 3, 1);
      } else if (size < 4096 && !draws_.OneIn(3)) {
        Append(&section, type | 1 << 2 | size << 4, 2);
      } else {
        Append(&section, type | 3 << 2 | size << 4, 3);
      }
      const size_t kept = is_repeated ? 1 : size;
      section.insert(section.end(), literals.begin(),
                     literals.begin() + static_cast<int64_t>(kept));
      return section;
    }
    Bytes coded;
    const auto code_before = literal_code_;
    const bool as_before = std::ranges::all_of(used, [&](uint8_t literal) {
      return literal < literal_code_.size() && literal_code_[literal].count > 0;
    });
    const bool repeats = as_before && draws_.OneIn(2);
    if (!repeats) coded = HuffmanTable(used);
    const bool is_one = size < 1024 && draws_.OneIn(2);
    std::array<Bytes, 4> streams;
    const size_t quarter = is_one ? size : (size + 3) / 4;
    for (size_t i = 0; i < (is_one ? 1 : 4); ++i) {
      Bits bits;
      for (size_t j = i * quarter; j < std::min((i + 1) * quarter, size); ++j) {
        bits.push_back(literal_code_[literals[j]]);
      }
      streams[i] = PackedBackward(std::move(bits));
      if (!is_one && i < 3) Append(&coded, streams[i].size(), 2);
    }
    for (const Bytes& stream : streams) {
      coded.insert(coded.end(), stream.begin(), stream.end());
    }
    const uint64_t type = repeats ? 3 : 2;
    const size_t most = std::max(size, coded.size());
    if (is_one && most < 1024) {
      Append(&section, type | size << 4 | coded.size() << 14, 3);
    } else if (!is_one && most < 1024) {
      Append(&section, type | 1 << 2 | size << 4 | coded.size() << 14, 3);
    } else if (!is_one && most < 16384) {
      Append(&section, type | 2 << 2 | size << 4 | coded.size() << 18, 4);
    } else if (!is_one) {
      Append(&section, type | 3 << 2 | size << 4 | coded.size() << 22, 5);
    } else {
      literal_code_ = code_before;
      return Literals(literals);  // one stream that became too long
    }
    section.insert(section.end(), coded.begin(), coded.end());
    return section;
  }

  // Makes a code for these literals and others, and returns its description.
  Bytes HuffmanTable(const std::set<uint8_t>& used) {
    std::set<uint8_t> coded = used;
    while (coded.size() < 2 || draws_.OneIn(4)) {
      coded.insert(static_cast<uint8_t>(draws_.Below(1 << 8)));
    }
    // The leaves of a tree that is split anywhere.
    std::vector<int> lengths = {0};
    while (lengths.size() < coded.size()) {
      int& leaf = lengths[static_cast<size_t>(draws_.Below(std::ssize(lengths)))];
      if (leaf < 11) lengths.push_back(++leaf);
    }
    const int max_bits = std::ranges::max(lengths);
    Bytes weights(size_t{*coded.rbegin()}, 0);
    auto length = lengths.begin();
    for (const uint8_t literal : coded) {
      if (literal < weights.size()) {
        weights[literal] = static_cast<uint8_t>(max_bits + 1 - *length);
      }
      ++length;
    }
    Bytes description;
    const bool fits_plainly = weights.size() <= 128;
    if (!fits_plainly || (weights.size() >= 2 && draws_.OneIn(2))) {
      description = PackedWeights(weights);
    }
    if (description.empty()) {
      if (!fits_plainly) return HuffmanTable(used);  // with other lengths
      description.push_back(static_cast<uint8_t>(127 + weights.size()));
      for (size_t i = 0; i < weights.size(); i += 2) {
        const int second = i + 1 < weights.size() ? weights[i + 1] : 0;
        description.push_back(static_cast<uint8_t>(weights[i] << 4 | second));
      }
    }
    auto table = std::make_unique<kernels::ZstdHuffmanTable>();
    const Bytes padded = Padded(description);
    std::span<const uint8_t> in(padded.begin() + kPadding, padded.end());
    if (!kernels::ReadHuffmanTable(&in, table.get())) std::abort();
    literal_code_.assign(256, {});
    for (size_t i = table->codes.size(); i-- > 0;) {
      const int count = table->codes[i] & 0xff;
      literal_code_[table->codes[i] >> 8] = {
          i >> (kernels::ZstdHuffmanTable::kBits - count), count};
    }
    return description;
  }

  // Nothing if these take too many bytes.
  Bytes PackedWeights(const Bytes& weights) {
    std::set<uint32_t> used(weights.begin(), weights.end());
    while (used.size() < 2) used.insert(static_cast<uint32_t>(draws_.Below(12)));
    const Bytes distribution = Distribution(used, 6);
    // Offsets have such tables too, and their codes are the numbers of their bits.
    kernels::ZstdStateTable table;
    std::span<const uint8_t> in(distribution);
    if (!kernels::ReadStateTable(kernels::kOffset, &in, &table)) std::abort();
    std::vector<uint32_t> states(weights.size());
    for (size_t i = weights.size(); i-- > 0;) {
      for (uint32_t state = 0; state < 1U << table.log; ++state) {
        const kernels::ZstdCell& cell = table.cells[state];
        if (cell.extra_bits != weights[i]) continue;
        if (i + 2 >= weights.size()) {
          // Bits must be lacking after it.
          if (cell.next_bits == 0) continue;
        } else if (!LeadsTo(cell, states[i + 2])) {
          continue;
        }
        states[i] = state;
        break;
      }
    }
    Bits bits = {{states[0], table.log}, {states[1], table.log}};
    for (size_t i = 0; i + 2 < weights.size(); ++i) {
      const kernels::ZstdCell& cell = table.cells[states[i]];
      bits.push_back({states[i + 2] - cell.next, cell.next_bits});
    }
    Bytes packed = PackedBackward(std::move(bits));
    const size_t num_bytes = distribution.size() + packed.size();
    if (num_bytes >= 128) return {};
    Bytes description = {static_cast<uint8_t>(num_bytes)};
    description.insert(description.end(), distribution.begin(), distribution.end());
    description.insert(description.end(), packed.begin(), packed.end());
    return description;
  }

  // How often these symbols occur among states, at random, as a table is described.
  Bytes Distribution(const std::set<uint32_t>& used, int max_log) {
    int log = 5;
    while ((1U << log) < used.size()) ++log;
    log = static_cast<int>(draws_.Between(log, max_log));
    std::vector<int> counts(size_t{*used.rbegin()} + 1, 0);
    int left = 1 << log;
    for (const uint32_t symbol : used) {
      counts[symbol] = draws_.OneIn(3) ? -1 : 1;
      --left;
    }
    while (left > 0) {
      int& count = counts[*std::next(used.begin(), draws_.Below(std::ssize(used)))];
      const auto more = static_cast<int>(draws_.Between(1, left));
      if (count == -1) {
        if (used.size() > 1 && !draws_.OneIn(8)) continue;
        count = 1;
      }
      count += more;
      left -= more;
    }
    Bits bits = {{static_cast<uint64_t>(log - 5), 4}};
    left = 1 << log;
    for (size_t i = 0; i < counts.size(); ++i) {
      const auto width =
          static_cast<int>(std::bit_width(static_cast<uint32_t>(left + 1)));
      const int num_short = (1 << width) - 1 - (left + 1);
      const int number = counts[i] + 1;
      if (number < num_short) {
        bits.push_back({static_cast<uint64_t>(number), width - 1});
      } else {
        const int moved = number >= 1 << (width - 1) ? number + num_short : number;
        bits.push_back({static_cast<uint64_t>(moved), width});
      }
      left -= std::abs(counts[i]);
      if (counts[i] != 0) continue;
      size_t zeros = 0;
      while (i + 1 < counts.size() && counts[i + 1] == 0) ++zeros, ++i;
      for (; zeros >= 3; zeros -= 3) bits.push_back({3, 2});
      bits.push_back({zeros, 2});
    }
    return Packed(bits, false);
  }

  static constexpr int64_t kPadding = 16;
  // With bytes before it, as in a frame.
  static Bytes Padded(const Bytes& bytes) {
    Bytes padded(kPadding, 0);
    padded.insert(padded.end(), bytes.begin(), bytes.end());
    return padded;
  }

  uint64_t OffsetNumber(size_t offset, bool has_literals) {
    const auto last = offsets_;
    const size_t shift = has_literals ? 0 : 1;
    for (size_t number = 1; number <= 3; ++number) {
      const size_t index = number + shift;
      const size_t meant = index <= 3 ? last[index - 1] : last[0] - 1;
      if (meant != offset || draws_.OneIn(3)) continue;
      if (index == 2) offsets_ = {last[1], last[0], last[2]};
      if (index == 3) offsets_ = {last[2], last[0], last[1]};
      if (index == 4) offsets_ = {offset, last[0], last[1]};
      return number;
    }
    offsets_ = {offset, last[0], last[1]};
    return offset + 3;
  }

  Bytes Sequences(const std::vector<BlockElement>& part) {
    std::array<std::vector<uint64_t>, kernels::kNumZstdCodes> values;
    for (const BlockElement& element : part) {
      if (element.copy_bytes == 0) continue;
      values[kernels::kLiteralLength].push_back(element.literals.size());
      values[kernels::kMatchLength].push_back(element.copy_bytes);
      values[kernels::kOffset].push_back(
          OffsetNumber(element.offset, !element.literals.empty()));
    }
    const size_t count = values[0].size();
    Bytes section;
    if (count < 128 && !draws_.OneIn(4)) {
      Append(&section, count, 1);
    } else if (count < 0x7F00 && (count > 0 || draws_.OneIn(2))) {
      Append(&section, (count >> 8) + 128, 1);
      Append(&section, count, 1);
    } else if (count < 0x7F00) {
      Append(&section, 0, 1);
    } else {
      Append(&section, 255, 1);
      Append(&section, count - 0x7F00, 2);
    }
    if (count == 0) return section;
    const size_t modes_at = section.size();
    section.push_back(0);
    for (size_t code = 0; code < kernels::kNumZstdCodes; ++code) {
      const auto [mode, description] =
          Table(static_cast<kernels::ZstdCode>(code), values[code]);
      section[modes_at] |= static_cast<uint8_t>(mode << (6 - 2 * code));
      section.insert(section.end(), description.begin(), description.end());
    }
    const Bytes bits = PackedBackward(CodedSequences(values));
    section.insert(section.end(), bits.begin(), bits.end());
    return section;
  }

  static bool Holds(const kernels::ZstdCell& cell, uint64_t value) {
    return value >= cell.base && value - cell.base < uint64_t{1} << cell.extra_bits;
  }
  static bool LeadsTo(const kernels::ZstdCell& cell, uint32_t state) {
    return state >= cell.next && state - cell.next < 1U << cell.next_bits;
  }
  static bool HoldsAll(const kernels::ZstdStateTable& table,
                       const std::vector<uint64_t>& values) {
    return table.log >= 0 && std::ranges::all_of(values, [&](uint64_t value) {
             return std::any_of(
                 table.cells.begin(), table.cells.begin() + (1 << table.log),
                 [&](const kernels::ZstdCell& cell) { return Holds(cell, value); });
           });
  }

  // Chooses a table that has all values. Returns its mode and its description.
  std::pair<int, Bytes> Table(kernels::ZstdCode code,
                              const std::vector<uint64_t>& values) {
    kernels::ZstdStateTable& table = tables_[code];
    if (has_tables_[code] && draws_.OneIn(3) && HoldsAll(table, values)) return {3, {}};
    if (draws_.OneIn(3) && HoldsAll(kernels::DefaultStateTable(code), values)) {
      table = kernels::DefaultStateTable(code);
      has_tables_[code] = true;
      return {0, {}};
    }
    std::set<uint32_t> used;
    for (const uint64_t value : values) {
      for (uint8_t symbol = 0;; ++symbol) {
        const Bytes one = {symbol};
        std::span<const uint8_t> in(one);
        kernels::ZstdStateTable single;
        if (!kernels::ReadSingleState(code, &in, &single)) std::abort();
        if (!Holds(single.cells[0], value)) continue;
        used.insert(symbol);
        break;
      }
    }
    has_tables_[code] = true;
    if (used.size() == 1 && draws_.OneIn(2)) {
      const Bytes one = {static_cast<uint8_t>(*used.begin())};
      std::span<const uint8_t> in(one);
      if (!kernels::ReadSingleState(code, &in, &table)) std::abort();
      return {1, one};
    }
    while (used.size() < 2 || draws_.OneIn(4)) {
      used.insert(static_cast<uint32_t>(draws_.Below(29)));
    }
    Bytes description = Distribution(used, code == kernels::kOffset ? 8 : 9);
    std::span<const uint8_t> in(description);
    if (!kernels::ReadStateTable(code, &in, &table) || !in.empty()) std::abort();
    return {2, description};
  }

  Bits CodedSequences(
      const std::array<std::vector<uint64_t>, kernels::kNumZstdCodes>& values) {
    const size_t count = values[0].size();
    std::array<std::vector<uint32_t>, kernels::kNumZstdCodes> states;
    for (size_t code = 0; code < states.size(); ++code) {
      const kernels::ZstdStateTable& table = tables_[code];
      states[code].resize(count);
      for (size_t i = count; i-- > 0;) {
        for (uint32_t state = 0; state < 1U << table.log; ++state) {
          const kernels::ZstdCell& cell = table.cells[state];
          if (!Holds(cell, values[code][i])) continue;
          if (i + 1 < count && !LeadsTo(cell, states[code][i + 1])) continue;
          states[code][i] = state;
          break;
        }
      }
    }
    const auto cell_of = [&](kernels::ZstdCode code, size_t i) -> const auto& {
      return tables_[code].cells[states[code][i]];
    };
    using kernels::kLiteralLength, kernels::kMatchLength, kernels::kOffset;
    Bits bits;
    for (const auto code : {kLiteralLength, kOffset, kMatchLength}) {
      bits.push_back({states[code][0], tables_[code].log});
    }
    for (size_t i = 0; i < count; ++i) {
      for (const auto code : {kOffset, kMatchLength, kLiteralLength}) {
        const auto& cell = cell_of(code, i);
        bits.push_back({values[code][i] - cell.base, cell.extra_bits});
      }
      if (i + 1 == count) break;
      for (const auto code : {kLiteralLength, kMatchLength, kOffset}) {
        const auto& cell = cell_of(code, i);
        bits.push_back({states[code][i + 1] - cell.next, cell.next_bits});
      }
    }
    return bits;
  }

  Draws& draws_;
  Bytes frame_;
  size_t max_block_ = 0;
  std::array<size_t, 3> offsets_{};
  std::vector<BitGroup> literal_code_;  // none before the first table
  std::array<kernels::ZstdStateTable, kernels::kNumZstdCodes> tables_;
  std::array<bool, kernels::kNumZstdCodes> has_tables_{};
};

}  // namespace torchparquet::testing
