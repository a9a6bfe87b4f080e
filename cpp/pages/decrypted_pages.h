#pragma once

#include <algorithm>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>

#include "bridge/loaded_library.h"
#include "files/parquet_file.h"
#include "pages/page_header.h"

namespace torchparquet {

// The pages of an encrypted column chunk. Arrow's page reader decrypts them, verifies
// checksums if present, and decompresses. Used by one thread at a time. A page's size is
// checked only after Arrow has read it; its header is authenticated.
class DecryptedPages {
 public:
  // `file` must outlive the pages.
  DecryptedPages(const ParquetFile& file, int64_t row_group, int column)
      : file_(file),
        row_group_(row_group),
        column_(column),
        reader_(file.OpenPages(row_group, column)) {}

  // Returns the header of the next page, as a page that is not compressed, or nothing at
  // the end of the column chunk.
  std::optional<PageHeader> Next() {
    Check(reader_->Next(&page_));
    if (!page_) return std::nullopt;
    ++num_read_;
    largest_bytes_ = std::max<int64_t>(largest_bytes_, std::ssize(page_->body));
    return page_->header;
  }
  // The number of pages before the one that Next returned last.
  int64_t number() const { return num_read_ - 1; }
  // The most that Arrow holds between two pages: a part of the file, and the largest page
  // so far, both stored and decompressed.
  int64_t held_bytes() const { return LoadedFooter::kAheadBytes + 2 * largest_bytes_; }
  // The content of that page, valid until Next or Seek.
  std::span<const uint8_t> body() const { return page_->body; }
  // Makes Next continue with the page of that number. Reads the pages before it again.
  void Seek(int64_t number) {
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

 private:
  const ParquetFile& file_;
  const int64_t row_group_;
  const int column_;
  std::unique_ptr<ArrowPages> reader_;
  std::optional<DecryptedPage> page_;
  int64_t num_read_ = 0;
  int64_t largest_bytes_ = 0;
};

}  // namespace torchparquet
