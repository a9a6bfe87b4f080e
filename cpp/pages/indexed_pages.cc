#include "pages/indexed_pages.h"

#include <algorithm>
#include <string>

#include "errors.h"

namespace torchparquet {
namespace {

[[noreturn]] void ThrowOtherRows(int64_t page, int64_t told, int64_t found) {
  throw CorruptFile("offset index contradicts the page at offset " +
                    std::to_string(page) + ": a border between pages at row " +
                    std::to_string(told) + ", found at row " + std::to_string(found));
}

}  // namespace

std::optional<OffsetIndex::Page> IndexedPages::Later(int64_t next, int64_t row) const {
  // The dictionary comes first.
  if (index_ == nullptr || next < index_->first_offset()) return std::nullopt;
  if (row >= group_rows_) return std::nullopt;
  const size_t page = index_->PageOfRow(row);
  const int64_t offset = index_->bytes(page).offset;
  if (offset <= next) return std::nullopt;
  return OffsetIndex::Page{.offset = offset, .first_row = index_->first_row(page)};
}

bool IndexedPages::HasWantedRow(size_t page) const {
  const int64_t begin = std::max(index_->first_row(page), task_rows_.begin);
  const int64_t end = std::min(index_->end_row(page), task_rows_.end);
  if (begin >= end) return false;
  if (selection_ == nullptr) return true;
  const RowRun run = selection_->NextRun(begin);
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

bool IndexedPages::TaskEndsIn(int64_t page) const {
  if (index_ == nullptr || task_rows_.end == group_rows_) return false;
  const auto found = index_->PageAt(page);
  return found && task_rows_.end <= index_->end_row(*found);
}

void IndexedPages::Check(int64_t page, int64_t next, int64_t first_row,
                         int64_t num_rows) const {
  if (index_ == nullptr) return;
  const auto found = index_->PageAt(page);
  if (!found) {
    throw CorruptFile("offset index does not tell of the page at offset " +
                      std::to_string(page));
  }
  const int64_t told_next = index_->bytes(*found).end();
  if (told_next != next) {
    throw CorruptFile("offset index contradicts the page at offset " +
                      std::to_string(page) + ": the next one begins at " +
                      std::to_string(told_next) + " or at " + std::to_string(next));
  }
  const int64_t told_row = index_->first_row(*found);
  if (told_row != first_row) ThrowOtherRows(page, told_row, first_row);
  if (num_rows >= 0) CheckEndRow(page, first_row + num_rows);
}

void IndexedPages::CheckEndRow(int64_t page, int64_t row) const {
  if (index_ == nullptr) return;
  const auto found = index_->PageAt(page);
  if (!found) return;
  const int64_t told = index_->end_row(*found);
  if (told != row) ThrowOtherRows(page, told, row);
}

void IndexedPages::CheckRowWithin(int64_t page, int64_t row) const {
  if (index_ == nullptr) return;
  const auto found = index_->PageAt(page);
  if (!found) return;
  const int64_t end = index_->end_row(*found);
  if (row > end) ThrowOtherRows(page, end, row);
}

}  // namespace torchparquet
