#include "kernels/shuffle/records.h"

#include <algorithm>
#include <cstddef>
#include <cstring>

#include "kernels/xxhash64.h"

namespace torchparquet::kernels {
namespace {

// Records of a tile stay in the L1 cache while column after column is copied.
constexpr int64_t kTileRows = 32;
constexpr uint64_t kLineBytes = 64;

const uint8_t* PointerOf(uint64_t address) {
  // The addresses are of memory that the caller has mapped.
  return reinterpret_cast<const uint8_t*>(address);  // NOLINT(performance-no-int-to-ptr)
}

void Prefetch(std::span<const uint64_t> records, int64_t record_bytes) {
  for (const uint64_t record : records) {
    const uint64_t end = record + static_cast<uint64_t>(record_bytes);
    for (uint64_t line = record / kLineBytes * kLineBytes; line < end; line += kLineBytes)
      __builtin_prefetch(PointerOf(line));
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

using Words = uint32_t __attribute__((vector_size(16)));

Words Load(uint64_t address) {
  Words words;
  std::memcpy(&words, PointerOf(address), sizeof(words));
  return words;
}

// True for four columns of 4 bytes that are side by side in records.
bool AreFourWords(std::span<const RecordColumn> columns) {
  if (columns.size() < 4) return false;
  for (int64_t i = 0; i < 4; ++i) {
    const RecordColumn& column = columns[static_cast<size_t>(i)];
    if (column.bytes != 4 || column.offset != columns[0].offset + 4 * i) return false;
  }
  return true;
}

// Copies four such columns of as many rows as are a multiple of four, and returns how
// many rows that are: a transposition takes a third of the time of single words.
int64_t GatherFourWords(std::span<const uint64_t> records,
                        std::span<const RecordColumn> columns, int64_t first_row) {
  const auto offset = static_cast<uint64_t>(columns[0].offset);
  size_t row = 0;
  for (; row + 4 <= records.size(); row += 4) {
    const Words a = Load(records[row] + offset);
    const Words b = Load(records[row + 1] + offset);
    const Words c = Load(records[row + 2] + offset);
    const Words d = Load(records[row + 3] + offset);
    const Words low_ab = __builtin_shufflevector(a, b, 0, 4, 1, 5);
    const Words low_cd = __builtin_shufflevector(c, d, 0, 4, 1, 5);
    const Words high_ab = __builtin_shufflevector(a, b, 2, 6, 3, 7);
    const Words high_cd = __builtin_shufflevector(c, d, 2, 6, 3, 7);
    const Words of_columns[] = {__builtin_shufflevector(low_ab, low_cd, 0, 1, 4, 5),
                                __builtin_shufflevector(low_ab, low_cd, 2, 3, 6, 7),
                                __builtin_shufflevector(high_ab, high_cd, 0, 1, 4, 5),
                                __builtin_shufflevector(high_ab, high_cd, 2, 3, 6, 7)};
    for (size_t i = 0; i < 4; ++i) {
      std::memcpy(columns[i].values + 4 * (first_row + static_cast<int64_t>(row)),
                  &of_columns[i], sizeof(Words));
    }
  }
  return static_cast<int64_t>(row);
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
  const auto rows = [&](int64_t begin, int64_t end) {
    const int64_t first = std::min(begin, num_rows);
    const int64_t count = std::min(end, num_rows) - first;
    return records.subspan(static_cast<size_t>(first), static_cast<size_t>(count));
  };
  // A core has few lines in flight. So records of the next tile are asked for column by
  // column, which takes a fifth less time than all of them at once.
  const int64_t rows_per_column =
      kTileRows / std::max<int64_t>(std::ssize(columns), 1) + 1;
  Prefetch(rows(0, kTileRows), record_bytes);
  for (int64_t begin = 0; begin < num_rows; begin += kTileRows) {
    const std::span<const uint64_t> tile = rows(begin, begin + kTileRows);
    int64_t next = begin + kTileRows;
    size_t number = 0;
    while (number < columns.size()) {
      const auto rest = columns.subspan(number);
      const bool are_four = AreFourWords(rest);
      const size_t count = are_four ? 4 : 1;
      const int64_t next_end = std::min(
          next + static_cast<int64_t>(count) * rows_per_column, begin + 2 * kTileRows);
      Prefetch(rows(next, next_end), record_bytes);
      next = next_end;
      const int64_t done = are_four ? GatherFourWords(tile, rest, begin) : 0;
      for (const RecordColumn& column : rest.first(count)) {
        uint8_t* out = column.values + (begin + done) * column.bytes;
        WithSize(column.bytes, [&](const auto& copy) {
          for (const uint64_t record : tile.subspan(static_cast<size_t>(done))) {
            copy(out, PointerOf(record) + column.offset);
            out += column.bytes;
          }
        });
      }
      number += count;
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
