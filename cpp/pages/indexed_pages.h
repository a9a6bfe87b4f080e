#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <utility>

#include "base/errors.h"
#include "files/parquet_file.h"
#include "files/row_selection.h"
#include "format/offset_index.h"

namespace torchparquet {

// The data pages of one column chunk as its offset index tells of them, and those that a
// task wants. Pages are named by the offset of their header in the file.
class IndexedPages {
 public:
  // The rows that are read.
  struct Wanted {
    const RowSelection* selection = nullptr;  // null for all
    // This process reads all rows of the row group, though perhaps in several tasks.
    bool is_whole = false;
  };

  // Without an index, nothing is told and every page is wanted. That of a file in a store
  // is known only if it was asked for ahead. `file` must outlive the pages.
  IndexedPages(const ParquetFile& file, int64_t row_group, int column,
               const Wanted& wanted);

  bool exist() const { return index_ != nullptr; }
  // The task will read `rows`, as they are stored, or those of them that are selected.
  // The first task that leaves out rows of the row group reads the index.
  void BeginTask(const RowRun& rows);
  // Goes on without the index, as all readers of this process do from then on.
  void Leave();
  // The same after `error`, which says that the index is wrong. Throws it if a reader has
  // found rows by the index, or if one of another process may have.
  void Refuse(const Error& error);

  // The page with `row`, if that comes after the page that begins at `next`.
  std::optional<OffsetIndex::Page> Later(int64_t next, int64_t row);
  // True if the task reads rows of the page.
  bool Wants(int64_t page) const;
  // The latest end of the page or of what comes before the first one, and `end` if that
  // is not told.
  int64_t LatestEnd(int64_t page, int64_t end) const;
  // The end of what to read ahead, from the page to `end`: no page is in it that the task
  // does not want, since that may not have been fetched.
  int64_t WantedEnd(int64_t page, int64_t end) const;
  // From now on the page at hand is this one, header included.
  void Enter(const ByteRange& page) { page_ = page; }
  // True if the task reads no row after the page at hand, though there are some.
  bool TaskEndsInPage() const;

  // These return an Error(kCorruptFile) if the index tells otherwise of the page at hand.
  using Contradiction = std::optional<Error>;

  // It ends where it does, begins with `first_row`, and has `num_rows` unless that is -1.
  Contradiction CheckRows(int64_t first_row, int64_t num_rows) const;
  // `row` comes after it.
  Contradiction CheckEndRow(int64_t row) const;
  // It has the rows before `row`.
  Contradiction CheckRowWithin(int64_t row) const;
  // The first row of the page, and nothing if the index does not tell of the page.
  std::optional<int64_t> FirstRow(int64_t page) const;
  size_t num_pages() const { return index_->num_pages(); }
  // The first of the pages.
  int64_t first_offset() const { return index_->first_offset(); }

 private:
  bool HasWantedRow(size_t page) const;
  std::optional<size_t> PageAtHand() const;
  std::shared_ptr<const OffsetIndex> ReadIndex() const;

  const ParquetFile& file_;
  const int64_t row_group_;
  const int column_;
  const int64_t group_rows_;
  const Wanted wanted_;
  const std::shared_ptr<OffsetIndexes> indexes_;
  bool has_looked_ = false;                   // for the index
  std::shared_ptr<const OffsetIndex> index_;  // null before, and without one
  RowRun task_rows_;
  ByteRange page_;  // at hand
};

}  // namespace torchparquet
