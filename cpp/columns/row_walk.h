#pragma once

#include <cstdint>
#include <memory>

#include "columns/column_reader.h"
#include "columns/values/page_values.h"
#include "pages/column_pages.h"
#include "pages/level_blocks.h"
#include "pages/selected_entries.h"

namespace torchparquet {

// The common part of readers that go from page to page of a column chunk.
class PagedReader : public ColumnReader {
 public:
  PagePlace place() const final { return place_; }
  int64_t restart_bytes() const final { return pages_.restart_bytes(); }

 protected:
  PagedReader(const ColumnRequest& column, ColumnStart start, ColumnBuffers buffers);

  // Returns the rows of the task, from the first to the last, as they are stored. The
  // dictionary comes first, also if reading starts at a later place.
  RowRun BeginTask(const RowRange& rows, DecodeScratch* scratch, EntryValues* values);
  // Begins the page that Next told of, at that stored row. Without lists, its rows are
  // known, and checked.
  void TakePage(const PageHeader& header, int64_t first_row);
  int64_t IndexOf(int64_t stored_row) const {
    return selection_ == nullptr ? stored_row : selection_->IndexOf(stored_row);
  }
  // The stored row of a row or, after the last one, the end of the row group.
  int64_t RowAt(int64_t row) const {
    if (selection_ == nullptr) return row;
    return row < selection_->num_rows() ? selection_->RowAt(row) : pages_.group_rows();
  }

  const int64_t max_page_bytes_;
  const RowSelection* const selection_;  // null for all rows
  PagePlace place_;  // of the open page; before the first, where to start
  ColumnPages pages_;
  DecodeScratch* scratch_ = nullptr;

 private:
  int64_t other_bytes() const final { return pages_.page_reader_bytes(); }

  bool has_started_ = false;
};

// The common part of readers of columns whose stored rows differ in length. Walks a
// column chunk's entries from row to row. A row continues until the next one begins, also
// across the borders of pages.
class RowWalk : public PagedReader {
 public:
  int64_t row() const override { return index_; }

 protected:
  RowWalk(const ColumnRequest& column, ColumnStart start, ColumnBuffers buffers);

  // Passes the entries of the next rows to WriteEntries, in order, and skips those of
  // rows that are not selected. Throws Error(kCorruptFile) if the column chunk has fewer
  // rows than that, or more than its row group.
  void TakeRows(int64_t num_rows);
  // The next row, as rows are stored.
  int64_t stored_row() const { return row_; }
  // The row of the row group that WriteEntries counts as `row`.
  int64_t StoredRow(int64_t row) const;

  // The error for an entry that repeats a list without an element.
  [[noreturn]] static void ThrowGoesOn();
  // True if an entry that repeats no list in sight only fills up a null: DuckDB stores a
  // null array of a fixed length as that many entries. Both definition levels are below
  // that of an empty list.
  static bool FillsNull(int defined, int last_defined, int element_level) {
    return defined == last_defined && defined < element_level - 1;
  }

  const LeafColumn& leaf() const { return leaf_; }
  DecodeScratch* scratch() const { return scratch_; }

 private:
  void ReadRows(const RowRange& rows, const ColumnTarget& target, DecodeScratch* scratch,
                DecodeProgress* progress) final;
  enum class Mode { kWrite, kSkip };
  void TakeStoredRows(int64_t num_rows, Mode mode);
  int64_t TakeRowsOfBlock(int64_t num_rows);
  [[noreturn]] void ThrowTooManyRows() const;
  [[noreturn]] static void ThrowNoneLeft();
  bool OpenPage(int64_t end_row, Mode mode);
  PageLevels LevelsOf(const PageHeader& header, const PageParts& parts) const;
  bool FitsIndex(const PageLevels& levels, bool is_sought);
  void LeaveIndex(const Error& wrong);
  bool TaskReachesPast(const PageHeader& header) const;
  struct Taken {
    int64_t num_entries;
    int64_t num_rows;  // that begin at one of them
  };
  static Taken CountEntries(const LevelBlock& block, int64_t max_rows);
  void TakeEntries(const LevelBlock& block, const Taken& taken, Mode mode);
  void PassEntries(const LevelBlock& block);
  int64_t RowOfValue(const LevelBlock& block, int64_t value) const;

  virtual EntryValues& values() = 0;
  // Calls TakeRows for each segment.
  virtual void WriteRows(const ColumnTarget& target, DecodeProgress* progress) = 0;
  // `row` is the row of the first entry or, if that entry continues a row, the next row.
  // An error about a value counts those of the block.
  virtual void WriteEntries(const LevelBlock& block, int64_t row) = 0;

  const LeafColumn& leaf_;
  LevelBlocks levels_;
  SelectedEntries entries_;
  bool is_selected_ = false;  // WriteEntries has rows of entries_
  bool page_is_open_ = false;
  bool in_row_;          // the next entry may continue a row
  int64_t row_;          // the next to begin, as rows are stored
  size_t near_run_ = 0;  // as RowSelection::NextRun keeps it
  int64_t index_;        // of the next row among the selected
  int64_t task_end_ = 0;
};

}  // namespace torchparquet
