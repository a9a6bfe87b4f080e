#pragma once

#include <cstdint>
#include <limits>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/errors.h"
#include "columns/values/segment_writer.h"
#include "columns/values/vocabulary.h"
#include "files/parquet_file.h"
#include "files/row_selection.h"
#include "format/schema.h"
#include "kernels/packing/packer.h"
#include "kernels/values/conversion.h"
#include "kernels/values/transform.h"

namespace torchparquet {

// How a column's lists are packed into sequences, and what stands where no value does.
struct PackRequest {
  kernels::Packing packing;
  uint64_t separator_bits = 0;
  uint64_t padding_bits = 0;
  int64_t planned_sequences = -1;  // of the whole row group; -1: not known
};

// A leaf column as the reader is told to deliver it.
struct ColumnRequest {
  std::string path;  // as in LeafColumn
  // The planned kinds, in one file or another. A file with another kind is an error.
  std::vector<std::string> kinds;
  kernels::Dtype dtype = kernels::Dtype::kInt64;  // of the tensor's items
  int64_t unit_nanoseconds = 0;  // a 1 in the tensor, of points in time; 0: as stored
  int64_t cell_items = 1;        // of each value
  // The levels of offsets from a row to its values. 0: each row has one value or, in a
  // column of lists, `list_length` of them.
  int64_t num_offsets = 0;
  int64_t list_length = 0;
  // If set, a row is a sequence of `list_length` items, packed from the row group's
  // lists.
  std::optional<PackRequest> pack = std::nullopt;
  bool lengths_only = false;  // a row is the length of its list; list_length is 1
  // With one level of offsets: a row is one value, or none.
  bool is_scalar = false;
  // A row that is null has no value, whatever becomes of other nulls.
  bool null_rows_are_empty = false;
  std::shared_ptr<const kernels::Transform> transform = nullptr;  // of numbers
  // If set, strings become their numbers in it; else they stay strings.
  std::shared_ptr<const Vocabulary> vocabulary = nullptr;
  // The value in every row of a file without the column. Without it, all rows are null
  // there, or such a file is an error.
  std::optional<uint64_t> default_bits = std::nullopt;
  // The same for strings and, with their number, for the items of a list.
  std::optional<std::string> default_bytes = std::nullopt;
  std::optional<int64_t> default_items = std::nullopt;
  bool missing_is_null = false;
  int64_t max_page_bytes = std::numeric_limits<int64_t>::max();  // decompressed
  // This process reads all rows of the row group, though perhaps by several readers.
  bool reads_whole_row_group = false;
};

// The paths by which files store one column. Tables rename columns without touching
// files.
struct StoredColumn {
  // In most data sets one, for all files. Empty: no file stores the column.
  std::vector<std::string> paths = {};
  // For each planned file the number of its path, -1 if it lacks the column. Empty: the
  // first path is that of all files.
  std::vector<int32_t> path_of_file = {};

  // Null if the file lacks it.
  const std::string* In(int64_t file) const {
    if (paths.empty()) return nullptr;
    if (path_of_file.empty()) return &paths.front();
    const int32_t number = path_of_file[static_cast<size_t>(file)];
    return number < 0 ? nullptr : &paths[static_cast<size_t>(number)];
  }
};

// A contiguous range of the rows of one row group. If some of its rows are selected, only
// these are counted.
struct RowRange {
  int64_t row_group = 0;  // within its file
  int64_t begin = 0;
  int64_t num_rows = 0;

  int64_t end() const { return begin + num_rows; }
};

// A page of a column chunk at which reading can continue.
struct PagePlace {
  int64_t offset = -1;    // ColumnPages::page_offset(); -1: the column chunk's first page
  int64_t first_row = 0;  // within the row group, as rows are stored
};

// A column chunk of a file, and where to start. Without a file, the column is stored in
// none.
struct ColumnStart {
  const LeafColumn& leaf() const { return file->leaves()[static_cast<size_t>(column)]; }

  std::shared_ptr<const ParquetFile> file = nullptr;
  int64_t row_group = 0;
  int column = -1;  // the number of the leaf; -1 if the file lacks the column
  PagePlace place = {};
  // The rows to read; null for all.
  std::shared_ptr<const RowSelection> selection = nullptr;
};

// Decodes the rows of one column chunk straight to their places, range after range.
// Between two ranges it keeps its page and the dictionary, so nothing is read or decoded
// twice. Used by one thread at a time.
class ColumnReader {
 public:
  virtual ~ColumnReader() = default;
  ColumnReader(const ColumnReader&) = delete;
  ColumnReader& operator=(const ColumnReader&) = delete;

  // Delivers `rows`, which begin at or after row(), and skips the pages between
  // undecoded. Never delivers fewer rows than asked. Throws Error with path, row group
  // and column; the reader must not be used after that.
  void Read(const RowRange& rows, const ColumnTarget& target, DecodeScratch* scratch,
            DecodeProgress* progress);

  // The next row within the row group, counted as in RowRange.
  virtual int64_t row() const = 0;
  // From there another reader can continue with row() and the rows after it.
  virtual PagePlace place() const { return {}; }
  // Bytes that another reader reads once more if it begins within the same page.
  virtual int64_t restart_bytes() const { return 0; }
  int64_t held_bytes() const { return buffers_.num_bytes() + other_bytes(); }
  // Takes the buffers. The reader must not be used after that.
  virtual ColumnBuffers TakeBuffers() { return std::move(buffers_); }

 protected:
  ColumnReader(const ColumnRequest& column, ColumnStart start,
               ColumnBuffers buffers = {});

  // As it was given: reading goes on from place().
  const ColumnStart& start() const { return start_; }
  const ParquetFile& file() const { return *start_.file; }
  ColumnBuffers* buffers() { return &buffers_; }

 private:
  // Held beside the buffers.
  virtual int64_t other_bytes() const { return 0; }
  virtual void ReadRows(const RowRange& rows, const ColumnTarget& target,
                        DecodeScratch* scratch, DecodeProgress* progress) = 0;

  const ColumnStart start_;
  ColumnBuffers buffers_;
  ErrorPlace error_place_;  // constant
};

inline ColumnReader::ColumnReader(const ColumnRequest& column, ColumnStart start,
                                  ColumnBuffers buffers)
    : start_(std::move(start)), buffers_(std::move(buffers)) {
  if (start_.file == nullptr) return;
  error_place_ = {
      .path = file().file().path(), .row_group = start_.row_group, .column = column.path};
}

inline void ColumnReader::Read(const RowRange& rows, const ColumnTarget& target,
                               DecodeScratch* scratch, DecodeProgress* progress) {
  try {
    ReadRows(rows, target, scratch, progress);
  } catch (...) {
    throw CurrentErrorAt(error_place_);
  }
}

}  // namespace torchparquet
