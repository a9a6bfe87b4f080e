#include "pages/indexed_pages.h"

#include <algorithm>
#include <string>

#include "base/errors.h"

namespace torchparquet {
namespace {

constexpr const char* kWayOut =
    "offset index contradicts its pages; read whole row groups, or rewrite the file "
    "with torchparquet rewrite: ";

Error OtherRows(int64_t page, int64_t told, int64_t found) {
  return CorruptFile(kWayOut, "page at offset ", page, ", a border between pages at row ",
                     told, ", found at row ", found);
}

}  // namespace

IndexedPages::IndexedPages(const ParquetFile& file, int64_t row_group, int column,
                           const Wanted& wanted)
    : file_(file),
      row_group_(row_group),
      column_(column),
      group_rows_(file.row_groups()[static_cast<size_t>(row_group)].num_rows),
      wanted_(wanted),
      indexes_(file.footer()->offset_indexes) {}

void IndexedPages::BeginTask(const RowRun& rows) {
  task_rows_ = rows;
  const bool takes_all = wanted_.is_whole && rows.num_rows() == group_rows_;
  if (has_looked_ || takes_all) return;
  has_looked_ = true;
  index_ = ReadIndex();
}

// Column chunks without lists that are read in whole need no index, not even by several
// readers: headers tell the rows of the pages that a reader skips.
std::shared_ptr<const OffsetIndex> IndexedPages::ReadIndex() const {
  const LeafColumn& leaf = file_.leaves()[static_cast<size_t>(column_)];
  if (wanted_.is_whole && leaf.element_levels.empty()) return nullptr;
  return file_.is_remote() ? file_.KnownOffsetIndex(row_group_, column_)
                           : file_.ReadOffsetIndex(row_group_, column_);
}

void IndexedPages::Leave() {
  indexes_->Leave(row_group_, column_);
  index_ = nullptr;
}

void IndexedPages::Refuse(const Error& error) {
  if (!wanted_.is_whole || !indexes_->Refuse(row_group_, column_)) throw error;
  index_ = nullptr;
}

std::optional<OffsetIndex::Page> IndexedPages::Later(int64_t next, int64_t row) {
  // The dictionary comes first.
  if (index_ == nullptr || next < index_->first_offset()) return std::nullopt;
  if (row >= group_rows_) return std::nullopt;
  const size_t page = index_->PageOfRow(row);
  const int64_t offset = index_->bytes(page).offset;
  if (offset <= next) return std::nullopt;
  if (!indexes_->Use(row_group_, column_)) {
    index_ = nullptr;
    return std::nullopt;
  }
  return OffsetIndex::Page{.offset = offset, .first_row = index_->first_row(page)};
}

bool IndexedPages::HasWantedRow(size_t page) const {
  const int64_t begin = std::max(index_->first_row(page), task_rows_.begin);
  const int64_t end = std::min(index_->end_row(page), task_rows_.end);
  if (begin >= end) return false;
  if (wanted_.selection == nullptr) return true;
  const RowRun run = wanted_.selection->NextRun(begin);
  return run.num_rows() > 0 && run.begin < end;
}

bool IndexedPages::Wants(int64_t page) const {
  if (index_ == nullptr) return true;
  const auto found = index_->PageAt(page);
  return found && HasWantedRow(*found);
}

int64_t IndexedPages::LatestEnd(int64_t page, int64_t end) const {
  if (index_ == nullptr) return end;
  if (page < index_->first_offset()) return index_->first_offset();
  const auto found = index_->PageAt(page);
  return found ? index_->bytes(*found).end() : end;
}

int64_t IndexedPages::WantedEnd(int64_t page, int64_t end) const {
  if (index_ == nullptr) return end;
  if (page < index_->first_offset()) return std::min(end, index_->first_offset());
  const auto first = index_->PageAt(page);
  if (!first) return end;
  size_t last = *first;
  while (last + 1 < index_->num_pages() && index_->bytes(last + 1).offset < end &&
         HasWantedRow(last + 1)) {
    ++last;
  }
  return std::min(end, index_->bytes(last).end());
}

std::optional<size_t> IndexedPages::PageAtHand() const {
  return index_ == nullptr ? std::nullopt : index_->PageAt(page_.offset);
}

bool IndexedPages::TaskEndsInPage() const {
  const auto found = PageAtHand();
  return found && task_rows_.end < group_rows_ &&
         task_rows_.end <= index_->end_row(*found);
}

IndexedPages::Contradiction IndexedPages::CheckRows(int64_t first_row,
                                                    int64_t num_rows) const {
  if (index_ == nullptr) return std::nullopt;
  const auto found = PageAtHand();
  if (!found) return CorruptFile(kWayOut, "no page at offset ", page_.offset);
  const int64_t told_next = index_->bytes(*found).end();
  if (told_next != page_.end()) {
    return CorruptFile(kWayOut, "page at offset ", page_.offset, ", next one at ",
                       told_next, ", found at ", page_.end());
  }
  const int64_t told_row = index_->first_row(*found);
  if (told_row != first_row) return OtherRows(page_.offset, told_row, first_row);
  return num_rows < 0 ? std::nullopt : CheckEndRow(first_row + num_rows);
}

IndexedPages::Contradiction IndexedPages::CheckEndRow(int64_t row) const {
  const auto found = PageAtHand();
  if (!found || index_->end_row(*found) == row) return std::nullopt;
  return OtherRows(page_.offset, index_->end_row(*found), row);
}

IndexedPages::Contradiction IndexedPages::CheckRowWithin(int64_t row) const {
  const auto found = PageAtHand();
  if (!found || row <= index_->end_row(*found)) return std::nullopt;
  return OtherRows(page_.offset, index_->end_row(*found), row);
}

std::optional<int64_t> IndexedPages::FirstRow(int64_t page) const {
  const auto found = index_->PageAt(page);
  if (!found) return std::nullopt;
  return index_->first_row(*found);
}

}  // namespace torchparquet
