#include "pages/decrypted_pages.h"

#include <algorithm>

#include "bridge/loaded_library.h"

namespace torchparquet {

DecryptedPages::DecryptedPages(const ParquetFile& file, int64_t row_group, int column)
    : file_(file),
      row_group_(row_group),
      column_(column),
      reader_(file.OpenPages(row_group, column)) {}

std::optional<PageHeader> DecryptedPages::Next() {
  Check(reader_->Next(&page_));
  if (!page_) return std::nullopt;
  ++num_read_;
  largest_bytes_ = std::max<int64_t>(largest_bytes_, std::ssize(page_->body));
  return page_->header;
}

void DecryptedPages::Seek(int64_t number) {
  if (number < num_read_) {
    reader_ = file_.OpenPages(row_group_, column_);
    num_read_ = 0;
    largest_bytes_ = 0;
  }
  // Decodes and drops the page: if a page is skipped unread, Arrow counts wrongly and
  // cannot decrypt the pages that follow.
  while (num_read_ < number && Next()) {
  }
  page_.reset();
}

}  // namespace torchparquet
