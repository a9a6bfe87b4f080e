#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "exact_buffer.h"
#include "reader/parallel_reader.h"
#include "recipes/parquet_recipe.h"

namespace torchparquet::testing {

// A directory of Parquet files for as long as it lives, all by one recipe, with
// global row numbers counted through. The recipe's row groups are those of each file.
class DataSet {
 public:
  DataSet(FileRecipe recipe, int64_t num_files);
  ~DataSet();
  DataSet(const DataSet&) = delete;
  DataSet& operator=(const DataSet&) = delete;

  // Its files, of which nothing is known.
  std::vector<PlannedFile> Planned() const;

  // A reader of every column, one field each, and of row.id and row.valid. Nulls are
  // filled, and shown in a valid tensor. All row groups in order.
  ReaderParts Spec(int64_t batch_rows, int64_t num_threads) const;

  const std::vector<StoredColumn>& columns() const { return recipe_.columns; }
  const std::vector<std::string>& paths() const { return paths_; }
  const std::string& path(int64_t file) const {
    return paths_[static_cast<size_t>(file)];
  }
  int64_t file_rows() const { return file_rows_; }
  int64_t num_rows() const { return file_rows_ * static_cast<int64_t>(paths_.size()); }

 private:
  FileRecipe recipe_;
  std::filesystem::path directory_;
  std::vector<std::string> paths_;
  int64_t file_rows_ = 0;
};

constexpr uint64_t kFillBits = 0x2222222222222222;

// The column as its kind is usually delivered.
ColumnRequest RequestOf(const StoredColumn& column);

// Bytes of max_memory for `num_slabs` batches in flight.
int64_t MemoryFor(const ReaderParts& spec, int64_t num_slabs);

// One row of a share: its global number and whether it counts.
struct PlannedRow {
  int64_t row_id;
  bool valid;
};
std::vector<PlannedRow> PlannedRows(const ReaderParts& spec);
std::vector<PlannedRow> PlannedRows(const Share& share);
// The same of several shares that are read at once, batch by batch.
std::vector<std::vector<PlannedRow>> LaneBatches(const ReaderParts& spec);

// Reads on the consumer's side: lends exactly sized slabs where the reader wants them,
// and compares every batch with what the data set says of its rows.
class Consumer {
 public:
  Consumer(const DataSet& data, const ReaderParts& spec, ReaderMemory memory = {});

  // Takes one batch and checks it. Returns false at the end of the stream.
  bool TakeOne();
  // Takes all batches and returns how many. With an error, all before it.
  int64_t TakeAll();
  // The failure that TakeAll ended with.
  const std::optional<Error>& error() const { return error_; }

  ParallelReader& reader() { return reader_; }
  int64_t num_mismatches() const { return num_mismatches_; }
  int64_t rows_taken() const { return rows_taken_; }

 private:
  void Check(const uint8_t* slab, int64_t num_rows);
  void CheckColumn(const ColumnSpec& column, const uint8_t* slab, int64_t num_rows);

  const ReaderParts spec_;
  std::vector<StoredColumn> columns_;
  std::vector<PlannedRow> planned_;
  std::vector<std::vector<PlannedRow>> lane_batches_;
  std::vector<ExactBuffer<uint8_t>> lent_;
  std::vector<bool> is_lent_;
  ParallelReader reader_;
  int64_t batches_taken_ = 0;
  int64_t rows_taken_ = 0;
  int64_t num_mismatches_ = 0;
  std::optional<Error> error_;
};

// Reads all of it and checks every cell and every count.
void CheckAll(const DataSet& data, const ReaderParts& spec);

}  // namespace torchparquet::testing
