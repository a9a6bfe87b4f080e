#include "columns/row_walk.h"

#include <algorithm>
#include <string>
#include <utility>

#include "base/errors.h"
#include "kernels/count_bytes.h"

namespace torchparquet {

PagedReader::PagedReader(const ColumnRequest& column, ColumnStart start_at,
                         ColumnBuffers buffers_to_use)
    : ColumnReader(column, std::move(start_at), std::move(buffers_to_use)),
      max_page_bytes_(column.max_page_bytes),
      selection_(start().selection.get()),
      place_(start().place),
      pages_(file(), start().row_group, start().column,
             {.max_page_bytes = column.max_page_bytes,
              .wanted = {selection_, column.reads_whole_row_group}},
             buffers()) {}

RowRun PagedReader::BeginTask(const RowRange& rows, DecodeScratch* scratch,
                              EntryValues* values) {
  scratch_ = scratch;
  const int64_t begin = RowAt(rows.begin);
  const RowRun stored{begin, rows.num_rows == 0 ? begin : RowAt(rows.end() - 1) + 1};
  pages_.BeginTask(scratch, stored);
  if (std::exchange(has_started_, true) || place_.offset < 0) return stored;
  const PageHeader* header = pages_.Next();
  if (header != nullptr && header->kind == PageHeader::Kind::kDictionary) {
    values->ReadDictionary(*header, pages_.ReadDictionaryPage());
  }
  pages_.Seek(place_.offset);
  return stored;
}

void PagedReader::TakePage(const PageHeader& header, int64_t first_row) {
  place_ = {.offset = pages_.page_offset(), .first_row = first_row};
  if (!start().leaf().element_levels.empty()) return;
  const auto wrong = pages_.indexed().CheckRows(first_row, header.num_values);
  if (wrong) throw Error(*wrong);
  if (header.num_values > pages_.group_rows() - first_row) {
    throw CorruptFile("column chunk holds more rows than its row group: ",
                      first_row + header.num_values, ", ", pages_.group_rows());
  }
}

RowWalk::RowWalk(const ColumnRequest& column, ColumnStart start_at,
                 ColumnBuffers buffers_to_use)
    : PagedReader(column, std::move(start_at), std::move(buffers_to_use)),
      leaf_(start().leaf()),
      in_row_(place_.offset >= 0),
      row_(place_.first_row),
      index_(IndexOf(row_)) {}

void RowWalk::ThrowGoesOn() {
  throw CorruptFile("levels continue a list but have no element for it");
}

void RowWalk::ReadRows(const RowRange& rows, const ColumnTarget& target,
                       DecodeScratch* scratch, DecodeProgress* progress) {
  const RowRun stored = BeginTask(rows, scratch, &values());
  task_end_ = stored.end;
  TakeStoredRows(stored.begin - row_, Mode::kSkip);
  index_ = rows.begin;
  WriteRows(target, progress);
}

void RowWalk::ThrowNoneLeft() {
  throw Error(ErrorKind::kInternal, "more rows were asked for than were selected");
}

void RowWalk::TakeRows(int64_t num_rows) {
  index_ += num_rows;
  if (selection_ == nullptr) return TakeStoredRows(num_rows, Mode::kWrite);
  while (num_rows > 0) {
    if (const int64_t taken = TakeRowsOfBlock(num_rows)) {
      num_rows -= taken;
      continue;
    }
    const RowRun run = selection_->NextRun(row_, &near_run_);
    if (run.num_rows() == 0) ThrowNoneLeft();
    if (run.begin > row_) TakeStoredRows(run.begin - row_, Mode::kSkip);
    const int64_t count = std::min(run.num_rows(), num_rows);
    TakeStoredRows(count, Mode::kWrite);
    num_rows -= count;
  }
}

// Takes some of the next selected rows, and rows between them, out of the entries at
// hand as if there were no others. Returns their number; 0 if the rows at hand are all
// selected, or none is, or they are few: runs are taken one by one then.
int64_t RowWalk::TakeRowsOfBlock(int64_t num_rows) {
  const LevelBlock block = levels_.Peek();
  const int64_t taken =
      entries_.Take(block, leaf_.max_level, *selection_, row_, num_rows);
  if (taken == 0) return 0;
  in_row_ = true;
  values().Select(entries_.value_bits(), entries_.num_values());
  is_selected_ = true;
  PassEntries(entries_.block());
  is_selected_ = false;
  values().EndSelected();
  row_ += entries_.num_rows();
  levels_.Take(entries_.num_entries());
  // The block has a row after a list.
  if (!leaf_.element_levels.empty() && row_ == pages_.group_rows()) ThrowTooManyRows();
  return taken;
}

void RowWalk::PassEntries(const LevelBlock& block) {
  try {
    WriteEntries(block, row_);
  } catch (const Error& error) {
    if (error.value() < 0) throw;
    throw error.WithRow(StoredRow(RowOfValue(block, error.value())));
  }
}

// The row, as WriteEntries counts them, of the value that has so many before it.
int64_t RowWalk::RowOfValue(const LevelBlock& block, int64_t value) const {
  int64_t next_row = row_;
  for (int64_t i = 0;; ++i) {
    next_row += block.repetition == nullptr || block.repetition[i] == 0;
    const bool is_value =
        block.definition == nullptr || block.definition[i] == leaf_.max_level;
    if (is_value && value-- == 0) return next_row - 1;
  }
}

void RowWalk::ThrowTooManyRows() const {
  throw CorruptFile("column chunk holds more rows than its row group: ", row_);
}

int64_t RowWalk::StoredRow(int64_t row) const {
  return is_selected_ && row >= row_ ? row_ + entries_.RowAt(row - row_) : row;
}

PageLevels RowWalk::LevelsOf(const PageHeader& header, const PageParts& parts) const {
  return {.max_repetition = static_cast<int>(leaf_.element_levels.size()),
          .max_definition = leaf_.max_level,
          .repetition = parts.repetition,
          .definition = parts.definition,
          .num_entries = header.num_values};
}

// Compares a page of lists with the offset index, and leaves an index that it
// contradicts. Returns false if that index led to the page: then the first page is the
// next one.
bool RowWalk::FitsIndex(const PageLevels& levels, bool is_sought) {
  if (!pages_.indexed().exist()) return true;
  // Rows of a page that is not read to its end, since another reader may go on after it,
  // and of one that is gone to, since no page before it tells where it begins.
  const bool counts =
      selection_ != nullptr || is_sought || pages_.indexed().TaskEndsInPage();
  auto wrong = pages_.indexed().CheckRows(row_, counts ? levels.NumRows() : -1);
  if (!wrong && is_sought && levels.begins_in_row()) {
    wrong =
        CorruptFile("offset index leads to a page that begins in the middle of a row");
  }
  if (!wrong) return true;
  const int64_t first_page = pages_.indexed().first_offset();
  LeaveIndex(*wrong);
  if (!is_sought) return true;
  pages_.Seek(first_page);
  row_ = 0;
  in_row_ = false;
  return false;
}

// Goes on without an index that is wrong only in this: that it names pages that begin in
// the middle of a row, by the rows that begin before them or by the row that goes on. So
// do parquet-rs before 41 and hyparquet-writer. No reader goes to such pages, and all
// other entries are right. Any other index is refused with the error `wrong`, also one
// that names a page within another, which a reader might go to.
void RowWalk::LeaveIndex(const Error& wrong) {
  ColumnBuffers buffers;
  DecodeScratch scratch;
  ColumnPages pages(file(), start().row_group, start().column,
                    {.max_page_bytes = max_page_bytes_}, &buffers);
  pages.BeginTask(&scratch, {0, pages.group_rows()});
  int64_t row = 0;
  size_t num_pages = 0;
  while (const PageHeader* header = pages.Next()) {
    if (!header->is_data()) continue;
    ++num_pages;
    const auto told = pages_.indexed().FirstRow(pages.page_offset());
    const PageLevels levels = LevelsOf(*header, pages.ReadDataPage(/*goes_on=*/false));
    const bool is_row_that_goes_on =
        levels.begins_in_row() && told == std::optional<int64_t>(row - 1);
    if (told != std::optional<int64_t>(row) && !is_row_that_goes_on) {
      return pages_.indexed().Refuse(wrong);
    }
    row += levels.NumRows();
  }
  if (num_pages != pages_.indexed().num_pages() || row != pages.group_rows()) {
    return pages_.indexed().Refuse(wrong);
  }
  pages_.indexed().Leave();
}

// Opens the next data page. Returns false at the end of the column chunk.
bool RowWalk::OpenPage(int64_t end_row, Mode mode) {
  const bool is_flat = leaf_.element_levels.empty();
  const bool skips = is_flat && mode == Mode::kSkip;
  while (true) {
    std::optional<int64_t> sought;
    if (mode == Mode::kSkip) sought = pages_.SeekRow(end_row);
    if (sought) row_ = *sought;
    const PageHeader* header = pages_.Next(skips ? end_row - row_ : 0);
    if (header == nullptr) return false;
    if (header->kind == PageHeader::Kind::kDictionary) {
      values().ReadDictionary(*header, pages_.ReadDictionaryPage());
      continue;
    }
    if (!header->is_data()) continue;
    TakePage(*header, row_);
    if (skips && header->num_values <= end_row - row_) {
      row_ += header->num_values;
      continue;
    }
    const PageParts parts = pages_.ReadDataPage(TaskReachesPast(*header));
    const PageLevels levels = LevelsOf(*header, parts);
    if (!is_flat && !FitsIndex(levels, sought.has_value())) continue;
    levels_.Open(levels);
    values().Open(*header, parts.values);
    page_is_open_ = true;
    return true;
  }
}

// Returns whether the task is likely to go on after a page, whose rows are not known.
bool RowWalk::TaskReachesPast(const PageHeader& header) const {
  const auto rows_per_entry =
      static_cast<double>(pages_.group_rows()) /
      static_cast<double>(std::max<int64_t>(1, pages_.num_entries()));
  const double page_rows = static_cast<double>(header.num_values) * rows_per_entry;
  return static_cast<double>(row_) + page_rows < static_cast<double>(task_end_);
}

// Counts the entries before the one that begins a row beyond `max_rows`.
RowWalk::Taken RowWalk::CountEntries(const LevelBlock& block, int64_t max_rows) {
  const int64_t num_rows = block.NumRows();
  if (num_rows <= max_rows) return {block.size, num_rows};
  return {block.RowBegin(max_rows), max_rows};
}

void RowWalk::TakeStoredRows(int64_t num_rows, Mode mode) {
  const int64_t end_row = row_ + num_rows;
  const bool is_flat = leaf_.element_levels.empty();
  while (!is_flat || row_ < end_row) {
    const LevelBlock block = levels_.Peek();
    if (block.size == 0) {
      if (std::exchange(page_is_open_, false)) {
        if (const auto wrong = pages_.indexed().CheckEndRow(row_)) LeaveIndex(*wrong);
      }
      if (OpenPage(end_row, mode)) continue;
      if (row_ == end_row) return;
      throw CorruptFile("column chunk ends after ", row_, " rows of ", end_row);
    }
    const Taken taken = CountEntries(block, end_row - row_);
    if (taken.num_entries == 0) {
      if (const auto wrong = pages_.indexed().CheckRowWithin(row_)) LeaveIndex(*wrong);
      break;
    }
    TakeEntries(block.First(taken.num_entries), taken, mode);
  }
  if (!is_flat && row_ == pages_.group_rows()) ThrowTooManyRows();
}

void RowWalk::TakeEntries(const LevelBlock& block, const Taken& taken, Mode mode) {
  if (!in_row_ && block.repetition != nullptr && block.repetition[0] != 0) {
    throw CorruptFile("column chunk begins in the middle of a row");
  }
  in_row_ = true;
  if (mode == Mode::kWrite) {
    PassEntries(block);
  } else {
    values().Skip(block.definition == nullptr
                      ? block.size
                      : kernels::CountEqual(block.definition, block.size,
                                            static_cast<uint8_t>(leaf_.max_level)));
  }
  row_ += taken.num_rows;
  levels_.Take(block.size);
}

}  // namespace torchparquet
