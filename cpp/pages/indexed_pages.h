#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <utility>

#include "files/row_selection.h"
#include "footers/offset_index.h"

namespace torchparquet {

// The data pages of one column chunk as its offset index tells of them, and those that a
// task wants. Pages are named by the offset of their header in the file.
class IndexedPages {
 public:
  // `index` is null if there is none: then nothing is told and every page is wanted.
  // `selection` are the rows that are read; null for all.
  IndexedPages(std::shared_ptr<const OffsetIndex> index, int64_t group_rows,
               const RowSelection* selection)
      : index_(std::move(index)), group_rows_(group_rows), selection_(selection) {}

  bool exist() const { return index_ != nullptr; }
  // The task will read `rows`, as they are stored, or those of them that are selected.
  void BeginTask(const RowRun& rows) { task_rows_ = rows; }

  // The page with `row`, if that comes after the page that begins at `next`.
  std::optional<OffsetIndex::Page> Later(int64_t next, int64_t row) const;
  // True if the task reads rows of the page.
  bool Wants(int64_t page) const;
  // The latest end of the page or of what comes before the first one, and `end` if that
  // is not told.
  int64_t LatestEnd(int64_t page, int64_t end) const;
  // The end of what to read ahead, from the page to `end`: no page is in it that the task
  // does not want, since that may not have been fetched.
  int64_t WantedEnd(int64_t page, int64_t end) const;
  // True if the task reads no row after the page, though there are some.
  bool TaskEndsIn(int64_t page) const;

  // These throw Error(kCorruptFile) if the index tells otherwise.

  // The page is followed by one at `next`. It begins with `first_row`, and has `num_rows`
  // unless that is -1.
  void Check(int64_t page, int64_t next, int64_t first_row, int64_t num_rows) const;
  // `row` comes after the page.
  void CheckEndRow(int64_t page, int64_t row) const;
  // The page has the rows before `row`.
  void CheckRowWithin(int64_t page, int64_t row) const;

 private:
  bool HasWantedRow(size_t page) const;

  const std::shared_ptr<const OffsetIndex> index_;
  const int64_t group_rows_;
  const RowSelection* const selection_;
  RowRun task_rows_;
};

}  // namespace torchparquet
