#include "format/list_counts.h"

#include <cstddef>
#include <optional>

#include "format/thrift_compact.h"

namespace torchparquet {
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
