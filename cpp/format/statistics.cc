#include "format/statistics.h"

#include <array>
#include <cstddef>
#include <cstring>

#include "format/thrift_compact.h"
#include "kernels/xxhash64.h"

namespace torchparquet {
namespace {

constexpr size_t kWords = 8;  // of 32 bits, in a block
constexpr int64_t kBlockBytes = 32;
constexpr std::array<uint32_t, kWords> kSalts = {0x47b6137b, 0x44974d91, 0x8824ad5b,
                                                 0xa2b7289d, 0x705495c7, 0x2df1424b,
                                                 0x9efc4947, 0x5c6bfb31};

struct Filter {
  int64_t header_bytes = 0;
  int64_t num_bytes = 0;  // without the header
};

// A union whose first kind is set: of algorithms, hashes and compressions all that is.
bool IsFirstKind(ThriftCompactReader* reader, int type) {
  bool is_first = false;
  reader->ReadStruct(type, [&](int64_t id, int inner) {
    is_first = id == 1;
    reader->SkipField(inner);
  });
  return is_first;
}

std::optional<Filter> ReadHeader(std::span<const uint8_t> bytes) {
  ThriftCompactReader reader(bytes);
  Filter filter;
  int num_known = 0;
  const auto known = [&](int64_t id) {
    return reader.At(id, [&](int type) { num_known += IsFirstKind(&reader, type); });
  };
  if (!ThriftCompactReader::IsSound([&] {
        reader.ReadFields(reader.I32(1, &filter.num_bytes), known(2), known(3), known(4));
      })) {
    return std::nullopt;
  }
  constexpr int kKinds = 3;
  const bool is_usable =
      num_known == kKinds && filter.num_bytes > 0 && filter.num_bytes % kBlockBytes == 0;
  if (!is_usable) return std::nullopt;
  filter.header_bytes = std::ssize(bytes) - static_cast<int64_t>(reader.rest_bytes());
  return filter;
}

}  // namespace

std::optional<int64_t> BloomFilterBytes(std::span<const uint8_t> bytes) {
  const auto filter = ReadHeader(bytes);
  if (!filter) return std::nullopt;
  return filter->header_bytes + filter->num_bytes;
}

bool MayHold(std::span<const uint8_t> filter, std::span<const uint8_t> value) {
  const auto header = ReadHeader(filter);
  if (!header || header->header_bytes + header->num_bytes > std::ssize(filter)) {
    return true;
  }
  const uint64_t hash = kernels::XxHash64(value);
  const auto num_blocks = static_cast<uint64_t>(header->num_bytes / kBlockBytes);
  const uint64_t block = ((hash >> 32) * num_blocks) >> 32;
  const uint8_t* words =
      filter.data() + header->header_bytes + static_cast<int64_t>(block) * kBlockBytes;
  const auto low = static_cast<uint32_t>(hash);
  for (size_t i = 0; i < kWords; ++i) {
    uint32_t word;
    std::memcpy(&word, words + i * sizeof(word), sizeof(word));
    if ((word >> ((low * kSalts[i]) >> 27) & 1) == 0) return false;
  }
  return true;
}
namespace {

ColumnIndex ReadColumnIndex(std::span<const uint8_t> bytes) {
  ThriftCompactReader reader(bytes);
  ColumnIndex index;
  reader.ReadFields(
      reader.List(1,
                  [&](int type) {
                    index.has_nulls_only.push_back(reader.ReadBoolElement(type));
                  }),
      reader.List(2, [&](int type) { index.low.push_back(reader.ReadBinary(type)); }),
      reader.List(3, [&](int type) { index.high.push_back(reader.ReadBinary(type)); }),
      reader.List(5, [&](int type) { index.num_nulls.push_back(reader.ReadI64(type)); }));
  return index;
}

// ColumnChunk, in the format's sense.
IndexPlaces ReadPlaces(ThriftCompactReader* reader, int struct_type) {
  IndexPlaces places;
  reader->ReadFields(struct_type, reader->I64(4, &places.offset_index.offset),
                     reader->I32(5, &places.offset_index.num_bytes),
                     reader->I64(6, &places.column_index.offset),
                     reader->I32(7, &places.column_index.num_bytes));
  return places;
}

}  // namespace

std::optional<ColumnIndex> ParseColumnIndex(std::span<const uint8_t> bytes) {
  ColumnIndex index;
  if (!ThriftCompactReader::IsSound([&] { index = ReadColumnIndex(bytes); })) {
    return std::nullopt;
  }
  const size_t num_pages = index.has_nulls_only.size();
  const bool agrees = index.low.size() == num_pages && index.high.size() == num_pages &&
                      (index.num_nulls.empty() || index.num_nulls.size() == num_pages);
  if (num_pages == 0 || !agrees) return std::nullopt;
  return index;
}

std::vector<IndexPlaces> FindIndexes(std::span<const uint8_t> footer) {
  ThriftCompactReader reader(footer);
  std::vector<IndexPlaces> found;
  const auto read_row_group = [&](int struct_type) {
    reader.ReadFields(struct_type, reader.List(1, [&](int element) {
      found.push_back(ReadPlaces(&reader, element));
    }));
  };
  const bool is_sound = ThriftCompactReader::IsSound(
      [&] { reader.ReadFields(reader.List(4, read_row_group)); });
  return is_sound ? found : std::vector<IndexPlaces>();
}
namespace {

// The numbers of entries at each level; empty where they are not told.
struct Histograms {
  std::vector<int64_t> repetition;
  std::vector<int64_t> definition;
};

struct Chunk {
  int64_t num_values = 0;
  Histograms levels;
};

// SizeStatistics.
Histograms ReadHistograms(ThriftCompactReader* reader, int struct_type) {
  Histograms levels;
  const auto numbers = [reader](int64_t id, std::vector<int64_t>* out) {
    return reader->List(id,
                        [=](int element) { out->push_back(reader->ReadI64(element)); });
  };
  reader->ReadFields(struct_type, numbers(2, &levels.repetition),
                     numbers(3, &levels.definition));
  return levels;
}

// ColumnChunk, in the format's sense.
Chunk ReadChunk(ThriftCompactReader* reader, int struct_type) {
  Chunk chunk;
  const auto read_metadata = [&](int type) {
    reader->ReadFields(type, reader->I64(5, &chunk.num_values),
                       reader->At(16, [&](int statistics) {
                         chunk.levels = ReadHistograms(reader, statistics);
                       }));
  };
  reader->ReadFields(struct_type, reader->At(3, read_metadata));
  return chunk;
}

// The sum of the levels from `begin` on, or nothing if one is below 0 or too large.
std::optional<int64_t> SumFrom(size_t begin, const std::vector<int64_t>& levels) {
  int64_t sum = 0;
  for (size_t i = begin; i < levels.size(); ++i) {
    if (levels[i] < 0 || __builtin_add_overflow(sum, levels[i], &sum)) return {};
  }
  return sum;
}

ListCounts Count(const Chunk& chunk, int64_t num_rows, const LeafColumn& leaf) {
  const auto& [repetition, definition] = chunk.levels;
  const auto max_level = static_cast<size_t>(leaf.max_level);
  if (repetition.size() != 2 || definition.size() != max_level + 1) return {};
  const auto element_level = static_cast<size_t>(leaf.element_levels.front());
  const std::optional<int64_t> num_items = SumFrom(element_level, definition);
  if (!num_items || SumFrom(0, definition) != chunk.num_values ||
      SumFrom(0, repetition) != chunk.num_values || repetition[0] != num_rows) {
    return {};
  }
  // Entries without an item are rows of their own.
  const int64_t num_filled = num_rows - (chunk.num_values - *num_items);
  if (num_filled < 0 || num_filled > *num_items) return {};
  return {.num_items = *num_items, .num_filled = num_filled};
}

// RowGroup. Its number of rows may come after its columns.
ListCounts ReadRowGroup(ThriftCompactReader* reader, int struct_type, int64_t column,
                        const LeafColumn& leaf) {
  Chunk found;
  int64_t num_rows = -1;
  int64_t number = 0;
  const auto read_chunk = [&](int element) {
    if (number++ == column) {
      found = ReadChunk(reader, element);
    } else {
      reader->SkipElement(element);
    }
  };
  reader->ReadFields(struct_type, reader->I64(3, &num_rows), reader->List(1, read_chunk));
  return Count(found, num_rows, leaf);
}

}  // namespace

std::vector<ListCounts> CountLists(std::span<const uint8_t> footer, int64_t column,
                                   const LeafColumn& leaf) {
  ThriftCompactReader reader(footer);
  std::vector<ListCounts> counts;
  if (leaf.element_levels.size() != 1) return counts;
  const bool is_sound = ThriftCompactReader::IsSound([&] {
    reader.ReadFields(reader.List(4, [&](int element) {
      counts.push_back(ReadRowGroup(&reader, element, column, leaf));
    }));
  });
  return is_sound ? counts : std::vector<ListCounts>();
}

}  // namespace torchparquet
