#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>

#include "files/parquet_file.h"
#include "pages/page_header.h"

namespace parquet {
class Page;
class PageReader;
}  // namespace parquet

namespace torchparquet {

// The pages of an encrypted column chunk, by Arrow's page reader, which decrypts them,
// verifies checksums where present, and decompresses. One thread's at a time. A page's
// size is checked only once Arrow has read it; its header is authenticated.
class DecryptedPages {
 public:
  // `file` must outlive the pages.
  DecryptedPages(const ParquetFile& file, int64_t row_group, int column);
  ~DecryptedPages();

  // The header of the next page, as that of one that is not compressed; nothing at the
  // end of the column chunk.
  std::optional<PageHeader> Next();
  // How many pages of the column chunk stand before the one that Next returned last.
  int64_t number() const { return num_read_ - 1; }
  // What Arrow holds between two pages, at most: a part of the file, and the largest page
  // so far, as it is stored and decompressed.
  int64_t held_bytes() const { return ParquetFile::kAheadBytes + 2 * largest_bytes_; }
  // Its content, until Next or Seek.
  std::span<const uint8_t> body() const;
  // Makes Next go on with the page that has that number: reads those before it again.
  void Seek(int64_t number);

 private:
  const ParquetFile& file_;
  const int64_t row_group_;
  const int column_;
  std::unique_ptr<parquet::PageReader> reader_;
  std::shared_ptr<parquet::Page> page_;
  int64_t num_read_ = 0;
  int64_t largest_bytes_ = 0;
};

}  // namespace torchparquet
