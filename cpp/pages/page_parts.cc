#include "pages/page_parts.h"

#include <bit>
#include <cstddef>
#include <cstring>
#include <string>

#include "base/errors.h"
#include "bridge/format.h"
#include "kernels/levels/bit_packed_levels.h"

namespace torchparquet {
namespace {

using kernels::BitPackedLevels;

bool IsV2(const PageHeader& header) { return header.kind == PageHeader::Kind::kDataV2; }

// Reads a little-endian 32-bit length at the start of `bytes`.
int64_t ReadLength(std::span<const uint8_t> bytes) {
  if (bytes.size() < 4) throw CorruptFile("page is too short for its levels");
  uint32_t length;
  std::memcpy(&length, bytes.data(), sizeof(length));
  return length;
}

std::span<const uint8_t> TakeFront(std::span<const uint8_t>* bytes, int64_t num_bytes) {
  if (num_bytes < 0 || num_bytes > static_cast<int64_t>(bytes->size())) {
    throw CorruptFile("page is too short for its levels");
  }
  const auto front = bytes->first(static_cast<size_t>(num_bytes));
  *bytes = bytes->subspan(static_cast<size_t>(num_bytes));
  return front;
}

int LevelWidth(int max_level) {
  return static_cast<int>(std::bit_width(static_cast<unsigned>(max_level)));
}

// Some writers store repetition levels although the column has none.
PageParts WantedParts(const ColumnChunk& chunk, const PageParts& stored) {
  PageParts parts{.values = stored.values};
  if (chunk.max_repetition_level > 0) parts.repetition = stored.repetition;
  if (chunk.max_definition_level > 0) parts.definition = stored.definition;
  return parts;
}

// The levels at the front of a V1 page, as they are stored.
std::span<const uint8_t> TakeLevels(std::span<const uint8_t>* body, int max_level,
                                    int encoding, int64_t num_values) {
  if (max_level == 0) return {};
  switch (encoding) {
    case Encoding::kRle: {
      const int64_t length = ReadLength(*body);
      TakeFront(body, 4);
      return TakeFront(body, length);
    }
    case Encoding::kBitPacked:
      return TakeFront(body, BitPackedLevels{.bytes = *body,
                                             .width = LevelWidth(max_level),
                                             .num_values = num_values}
                                 .NumBytes());
    default:
      throw CorruptFile("levels are neither RLE nor BIT_PACKED but have encoding number ",
                        encoding);
  }
}

// Rewrites levels in the deprecated encoding as the RLE/bit-packing hybrid.
void RepackLevels(const ColumnChunk& chunk, const PageHeader& header, PageParts* parts,
                  ScratchBuffer* memory) {
  const BitPackedLevels repetition{.bytes = parts->repetition,
                                   .width = LevelWidth(chunk.max_repetition_level),
                                   .num_values = header.num_values};
  const BitPackedLevels definition{.bytes = parts->definition,
                                   .width = LevelWidth(chunk.max_definition_level),
                                   .num_values = header.num_values};
  const auto is_packed = [](const BitPackedLevels& levels, int encoding) {
    return levels.width > 0 && encoding == Encoding::kBitPacked;
  };
  const bool packs_repetition = is_packed(repetition, header.repetition_level_encoding);
  const bool packs_definition = is_packed(definition, header.definition_level_encoding);
  if (!packs_repetition && !packs_definition) return;
  const auto repetition_bytes = static_cast<size_t>(repetition.NumRunBytes());
  const auto definition_bytes = static_cast<size_t>(definition.NumRunBytes());
  uint8_t* out = memory->Reserve(repetition_bytes + definition_bytes);
  if (packs_repetition) {
    kernels::RepackLevels(repetition, out);
    parts->repetition = {out, repetition_bytes};
    out += repetition_bytes;
  }
  if (packs_definition) {
    kernels::RepackLevels(definition, out);
    parts->definition = {out, definition_bytes};
  }
}

// The parts of a V1 page, which are compressed together.
PageParts PartsOfV1(const ColumnChunk& chunk, const PageHeader& header,
                    std::span<const uint8_t> body, ScratchBuffer* levels) {
  PageParts parts;
  parts.repetition = TakeLevels(&body, chunk.max_repetition_level,
                                header.repetition_level_encoding, header.num_values);
  parts.definition = TakeLevels(&body, chunk.max_definition_level,
                                header.definition_level_encoding, header.num_values);
  RepackLevels(chunk, header, &parts, levels);
  parts.values = body;
  return parts;
}

// The parts of a V2 page whose values are not compressed.
PageParts PartsOfV2(const PageHeader& header, std::span<const uint8_t> body) {
  PageParts parts;
  parts.repetition = TakeFront(&body, header.repetition_level_bytes);
  parts.definition = TakeFront(&body, header.definition_level_bytes);
  parts.values = body;
  return parts;
}

}  // namespace

int64_t LevelBytes(const ColumnChunk& chunk, const PageHeader& header, int64_t offset,
                   ReadAhead* file) {
  int64_t num_bytes = 0;
  const auto take = [&](int64_t count) {
    if (count < 0 || count > header.compressed_bytes - num_bytes) {
      throw CorruptFile("page is too short for its levels");
    }
    num_bytes += count;
  };
  if (IsV2(header)) {
    take(header.repetition_level_bytes);
    take(header.definition_level_bytes);
    return num_bytes;
  }
  for (const int max_level : {chunk.max_repetition_level, chunk.max_definition_level}) {
    if (max_level == 0) continue;
    const ByteRange length{offset + num_bytes, 4};
    take(length.num_bytes);
    take(ReadLength(file->View(length, length.end())));
  }
  return num_bytes;
}

bool IsCompressed(const ColumnChunk& chunk, const PageHeader& header) {
  if (!IsV2(header)) return chunk.is_compressed;
  return chunk.is_compressed && (header.is_compressed || chunk.always_compressed);
}

CompressedPage LayOut(const ColumnChunk& chunk, const PageHeader& header,
                      std::span<const uint8_t> body, ScratchBuffer* memory) {
  PageParts parts;
  std::span<const uint8_t> values = body;
  int64_t num_bytes = header.uncompressed_bytes;
  if (IsV2(header)) {
    parts = PartsOfV2(header, body);
    values = parts.values.bytes();
    num_bytes -= header.repetition_level_bytes + header.definition_level_bytes;
    if (!IsCompressed(chunk, header)) num_bytes = std::ssize(values);
  }
  if (num_bytes < 0) throw CorruptFile("page is too short for its levels");
  uint8_t* out = memory->Reserve(parts.repetition.size() + parts.definition.size() +
                                 static_cast<size_t>(num_bytes));
  const auto copy = [&](std::span<const uint8_t> levels) {
    const std::span<uint8_t> place(out, levels.size());
    if (!levels.empty()) std::memcpy(out, levels.data(), levels.size());
    out += levels.size();
    return place;
  };
  CompressedPage page;
  page.repetition = copy(parts.repetition);
  page.definition = copy(parts.definition);
  page.block = {values, {out, static_cast<size_t>(num_bytes)}};
  return page;
}

PageParts PartsOf(const ColumnChunk& chunk, const PageHeader& header,
                  const CompressedPage& page, ScratchBuffer* levels) {
  if (!IsV2(header)) return PartsOfV1(chunk, header, page.block.out, levels);
  return WantedParts(chunk, {page.repetition, page.definition, page.block.out});
}

PageParts PartsOf(const ColumnChunk& chunk, const PageHeader& header,
                  std::span<const uint8_t> body, ScratchBuffer* levels) {
  if (!IsV2(header)) return PartsOfV1(chunk, header, body, levels);
  return WantedParts(chunk, PartsOfV2(header, body));
}

}  // namespace torchparquet
