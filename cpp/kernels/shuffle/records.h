#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace torchparquet::kernels {

// Rows as records: the values of a row of all columns side by side, so that a row which
// is read alone costs a few cache lines, and not one for each column. Records and items
// need not be aligned.

// A column of a batch, `bytes` for each row, and its place in a record.
struct RecordColumn {
  uint8_t* values = nullptr;
  int64_t bytes = 0;
  int64_t offset = 0;
};

// Writes the rows of columns to `num_rows` consecutive records.
void PackRecords(std::span<const RecordColumn> columns, int64_t num_rows,
                 int64_t record_bytes, uint8_t* records);

// Writes the records at these addresses to rows of columns, in order.
void GatherRecords(std::span<const uint64_t> records, int64_t record_bytes,
                   std::span<const RecordColumn> columns);

// Finds rows in pieces: piece i has the rows [firsts[i], firsts[i + 1]) from the address
// `bases[i]` on. Writes the piece of each row, and the address of its record.
void LocateRecords(std::span<const int64_t> rows, std::span<const int64_t> firsts,
                   std::span<const uint64_t> bases, int64_t record_bytes, int64_t* pieces,
                   uint64_t* records);

// Items of a batch: `counts[row]` items of each row, one row's after another's.
struct RowItems {
  uint8_t* items = nullptr;
  int64_t bytes = 0;  // of an item
  const int32_t* counts = nullptr;
};

// Writes what rows have of all kinds of items to one piece of memory, row after row.
void PackItems(std::span<const RowItems> kinds, int64_t num_rows, uint8_t* out);

// Writes the items of rows, whose pieces begin at these addresses, kind by kind.
void GatherItems(std::span<const uint64_t> rows, std::span<const RowItems> kinds);

// The digests of blocks of `block_bytes`, the last of which may be shorter.
std::vector<uint64_t> DigestsOfBlocks(std::span<const uint8_t> bytes,
                                      int64_t block_bytes);

}  // namespace torchparquet::kernels
