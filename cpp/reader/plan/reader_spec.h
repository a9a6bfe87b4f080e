#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "batches/layout.h"
#include "columns/column_reader.h"
#include "files/parquet_files.h"
#include "reader/plan/selections.h"
#include "reader/plan/share.h"

namespace torchparquet {

// One stored column and the place of its values: element `element` of field `field`.
struct ColumnSpec {
  ColumnRequest request;
  StoredColumn stored = {};
  int64_t field = 0;
  int64_t element = 0;
  NullPolicy nulls = NullPolicy::kError;
  uint64_t fill_bits = 0;
  // Not stored, but one value for each of the planned files, as partition keys are. No
  // value is a null.
  std::vector<std::optional<uint64_t>> file_bits = {};
};

// All that a reader is told, before it is checked.
struct ReaderParts {
  std::shared_ptr<ParquetFiles> files;  // which other readers may share
  Share share;
  // Further shares that are read at once: in every batch the rows of each follow those of
  // the share before.
  std::vector<Share> beside = {};
  std::shared_ptr<const Selections> selections = nullptr;  // null: all rows
  int64_t batch_rows = 0;  // 0: one batch per chunk, or as batch_sizes says
  // Rows of each batch, those of none left out. They are given only where batch_rows is
  // 0, and windows need them there.
  std::vector<int64_t> batch_sizes = {};
  std::vector<FieldSpec> fields;
  std::vector<ColumnSpec> columns;
  int64_t row_id_field = -1;     // int64; -1: not wanted
  int64_t row_valid_field = -1;  // bool; -1: not wanted
  int64_t num_threads = 1;
  int64_t max_memory_bytes = int64_t{1} << 30;
  // Set by ReaderSpec: the part for files in stores, and what the lanes sum up to.
  int64_t prefetch_bytes = 0;
  std::vector<int64_t> lane_rows = {};
  int64_t max_chunk_rows = 0;
  bool lent_slabs = false;  // the consumer brings the memory of batches
  // Rows are packed sequences. Selected rows are the documents that are packed then.
  bool rows_are_packed = false;

  int64_t num_lanes() const { return 1 + static_cast<int64_t>(beside.size()); }
  const Share& lane(int64_t number) const {
    return number == 0 ? share : beside[static_cast<size_t>(number - 1)];
  }
  bool has_windows() const;
  // True if the windows have an order each.
  bool has_orders() const;
  // The positions that the only share takes one by one, or null.
  Claims* claims() const { return share.claims.get(); }

  // Per slice: one for each column, then those for row ids and validity if wanted.
  int64_t num_tasks() const {
    return static_cast<int64_t>(columns.size()) + (row_id_field >= 0) +
           (row_valid_field >= 0);
  }
};

// Parts that were checked: none contradicts itself or another one.
struct ReaderSpec : ReaderParts {
  // Bounds the pages of columns by the reader's memory, of which a part is set aside for
  // bytes of files in stores. Throws Error(kInvalidArgument).
  explicit ReaderSpec(ReaderParts parts);
};

// Throws Error(kInvalidArgument) unless the chunk is one of the files and its rows are
// selected.
void CheckChunk(const ReaderParts& spec, const Chunk& chunk);

// For each task: true if it decodes items of variable length.
std::vector<bool> AreJagged(const ReaderSpec& spec);

}  // namespace torchparquet
