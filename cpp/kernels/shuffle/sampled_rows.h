#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace torchparquet::kernels {

// The rows that samples are of, among rows that are numbered over all row groups.
struct SampledRows {
  std::vector<int64_t> row_groups;  // those with a marked row, ascending
  // Marks of the rows of these row groups, 64 a word. Each row group begins a word.
  std::vector<uint64_t> words;
};

// Marks the rows to read, some of which may be given twice. `first_rows` has the first
// row of each row group, and the number of all rows last. Writes for each sample the
// place of its row among the marked ones. Throws Error(kInvalidArgument) for a row that
// is none, or is not marked. Takes 5 to 10 ns a row.
SampledRows MarkSampledRows(std::span<const int64_t> marked,
                            std::span<const int64_t> samples,
                            std::span<const int64_t> first_rows, uint32_t* places);

// Writes the numbers of keys in ascending order of the keys, which are random; equal ones
// stay in their order. Takes a third of the time of a sort, as random keys are nearly in
// order once they are in as many buckets.
void SortRandomKeys(std::span<const uint64_t> keys, uint32_t* order);

}  // namespace torchparquet::kernels
