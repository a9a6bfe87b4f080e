#include "kernels/shuffle/records.h"

#include <algorithm>
#include <cstddef>
#include <cstring>

#include "kernels/xxhash64.h"

namespace torchparquet::kernels {
namespace {

// Records of a tile stay in the L1 cache while column after column is copied.
constexpr int64_t kTileRows = 64;
constexpr int64_t kLineBytes = 64;

const uint8_t* PointerOf(uint64_t address) {
  // The addresses are of memory that the caller has mapped.
  return reinterpret_cast<const uint8_t*>(address);  // NOLINT(performance-no-int-to-ptr)
}

void Prefetch(std::span<const uint64_t> records, int64_t record_bytes) {
  for (const uint64_t record : records) {
    const uint8_t* line = PointerOf(record);
    for (int64_t at = 0; at < record_bytes; at += kLineBytes)
      __builtin_prefetch(line + at);
    __builtin_prefetch(line + record_bytes - 1);
  }
}

// Calls `copy` with the size as a constant where there is one that is usual.
template <typename Copy>
void WithSize(int64_t bytes, const Copy& copy) {
  switch (bytes) {
    case 1:
      return copy([](uint8_t* to, const uint8_t* from) { *to = *from; });
    case 2:
      return copy([](uint8_t* to, const uint8_t* from) { std::memcpy(to, from, 2); });
    case 4:
      return copy([](uint8_t* to, const uint8_t* from) { std::memcpy(to, from, 4); });
    case 8:
      return copy([](uint8_t* to, const uint8_t* from) { std::memcpy(to, from, 8); });
    default:
      return copy([bytes](uint8_t* to, const uint8_t* from) {
        std::memcpy(to, from, static_cast<size_t>(bytes));
      });
  }
}

}  // namespace

void PackRecords(std::span<const RecordColumn> columns, int64_t num_rows,
                 int64_t record_bytes, uint8_t* records) {
  for (int64_t begin = 0; begin < num_rows; begin += kTileRows) {
    const int64_t end = std::min(num_rows, begin + kTileRows);
    for (const RecordColumn& column : columns) {
      WithSize(column.bytes, [&](const auto& copy) {
        for (int64_t row = begin; row < end; ++row) {
          copy(records + row * record_bytes + column.offset,
               column.values + row * column.bytes);
        }
      });
    }
  }
}

void GatherRecords(std::span<const uint64_t> records, int64_t record_bytes,
                   std::span<const RecordColumn> columns) {
  const int64_t num_rows = std::ssize(records);
  const auto tile_at = [&](int64_t begin) {
    const int64_t first = std::min(begin, num_rows);
    const int64_t count = std::min(kTileRows, num_rows - first);
    return records.subspan(static_cast<size_t>(first), static_cast<size_t>(count));
  };
  Prefetch(tile_at(0), record_bytes);
  for (int64_t begin = 0; begin < num_rows; begin += kTileRows) {
    Prefetch(tile_at(begin + kTileRows), record_bytes);
    const std::span<const uint64_t> tile = tile_at(begin);
    for (const RecordColumn& column : columns) {
      uint8_t* out = column.values + begin * column.bytes;
      WithSize(column.bytes, [&](const auto& copy) {
        for (const uint64_t record : tile) {
          copy(out, PointerOf(record) + column.offset);
          out += column.bytes;
        }
      });
    }
  }
}

void LocateRecords(std::span<const int64_t> rows, std::span<const int64_t> firsts,
                   std::span<const uint64_t> bases, int64_t record_bytes, int64_t* pieces,
                   uint64_t* records) {
  // Pieces have about as many rows each, so the guess is seldom off by more than one.
  const auto num_pieces = static_cast<double>(bases.size());
  const double pieces_per_row = num_pieces / static_cast<double>(firsts.back());
  for (size_t i = 0; i < rows.size(); ++i) {
    auto piece = static_cast<size_t>(
        std::min(num_pieces - 1, static_cast<double>(rows[i]) * pieces_per_row));
    while (rows[i] < firsts[piece]) --piece;
    while (rows[i] >= firsts[piece + 1]) ++piece;
    pieces[i] = static_cast<int64_t>(piece);
    records[i] =
        bases[piece] + static_cast<uint64_t>((rows[i] - firsts[piece]) * record_bytes);
  }
}

void PackItems(std::span<const RowItems> kinds, int64_t num_rows, uint8_t* out) {
  std::vector<const uint8_t*> next;
  for (const RowItems& kind : kinds) next.push_back(kind.items);
  for (int64_t row = 0; row < num_rows; ++row) {
    for (size_t i = 0; i < kinds.size(); ++i) {
      const int64_t size = kinds[i].counts[row] * kinds[i].bytes;
      if (size == 0) continue;  // there may be no memory
      std::memcpy(out, next[i], static_cast<size_t>(size));
      next[i] += size;
      out += size;
    }
  }
}

void GatherItems(std::span<const uint64_t> rows, std::span<const RowItems> kinds) {
  constexpr size_t kAhead = 16;
  std::vector<uint8_t*> next;
  for (const RowItems& kind : kinds) next.push_back(kind.items);
  for (size_t row = 0; row < rows.size(); ++row) {
    if (row + kAhead < rows.size()) __builtin_prefetch(PointerOf(rows[row + kAhead]));
    const uint8_t* from = PointerOf(rows[row]);
    for (size_t i = 0; i < kinds.size(); ++i) {
      const int64_t size = kinds[i].counts[row] * kinds[i].bytes;
      if (size == 0) continue;
      std::memcpy(next[i], from, static_cast<size_t>(size));
      next[i] += size;
      from += size;
    }
  }
}

std::vector<uint64_t> DigestsOfBlocks(std::span<const uint8_t> bytes,
                                      int64_t block_bytes) {
  std::vector<uint64_t> digests;
  while (!bytes.empty()) {
    const size_t size = std::min(bytes.size(), static_cast<size_t>(block_bytes));
    digests.push_back(XxHash64(bytes.first(size)));
    bytes = bytes.subspan(size);
  }
  return digests;
}

}  // namespace torchparquet::kernels
