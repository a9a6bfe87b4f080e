#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>

#include "parquet_file.h"
#include "scratch.h"

namespace arrow::io {
class InputStream;
}
namespace parquet {
class DataPage;
struct DataPageStats;
class Page;
class PageReader;
}  // namespace parquet

namespace torchparquet {

// The two parts of a data page of a column without repetition, decompressed.
struct PageParts {
  std::span<const uint8_t> levels;  // definition levels; empty for a required column
  std::span<const uint8_t> values;
  bool bit_packed_levels = false;  // the deprecated encoding of some old writers
};

// Walks the pages of one column chunk. One thread's.
//
// Arrow reads page headers and verifies checksums where present. The first page, which
// may be a dictionary, it decompresses too; the data pages are decompressed here, into
// the thread's scratch, because Arrow makes a new zstd context for every page: on
// pages of 20,000 values that is a fifth of the time of reading them.
class ColumnPages {
 public:
  using SkipPage = std::function<bool(const parquet::DataPageStats&)>;

  // Checks what the footer claims of the column chunk against the file and the row
  // group. Data pages that `skip` chooses are passed over undecoded; it is called once
  // for each, in order. `file` and `scratch` must outlive the pages.
  ColumnPages(const ParquetFile& file, int64_t row_group, int column, SkipPage skip,
              DecodeScratch* scratch);
  ~ColumnPages();

  // Returns the next page, or null at the end. It is valid until the next call.
  std::shared_ptr<parquet::Page> Next();

  // Takes apart the data page that Next returned last. What it returns is valid as
  // long as the page. Throws Error(kCorruptFile) for a page too short for its claims.
  PageParts Split(const parquet::DataPage& page);

 private:
  std::unique_ptr<parquet::PageReader> OpenReader(bool decompress, int64_t num_values);
  std::span<const uint8_t> Decompress(std::span<const uint8_t> bytes, int64_t num_bytes);

  struct Chunk;

  const std::unique_ptr<const Chunk> chunk_;
  const SkipPage skip_;
  DecodeScratch* scratch_;
  std::shared_ptr<arrow::io::InputStream> stream_;
  int64_t num_announced_ = 0;  // values of the pages announced so far
  std::unique_ptr<parquet::PageReader> first_page_reader_;
  std::unique_ptr<parquet::PageReader> raw_page_reader_;  // from the second page on
  bool is_raw_ = false;  // whether the latest page came from it
};

}  // namespace torchparquet
