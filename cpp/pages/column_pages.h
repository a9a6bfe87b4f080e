#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>

#include "files/parquet_file.h"
#include "files/row_selection.h"
#include "kernels/codecs/block_lanes.h"
#include "pages/column_chunk.h"
#include "pages/decode_scratch.h"
#include "pages/decrypted_pages.h"
#include "pages/indexed_pages.h"
#include "pages/page_header.h"
#include "pages/page_parts.h"
#include "pages/read_ahead.h"

namespace torchparquet {

// Walks the pages of one column chunk and verifies checksums if present. Used by one
// thread at a time; another thread may use it in the next task.
class ColumnPages {
 public:
  struct Limits {
    int64_t max_page_bytes;  // decompressed
    IndexedPages::Wanted wanted = {};
  };
  // Checks the footer's claims about the column chunk against the file and the row group.
  // `file` and `buffers` must outlive the pages.
  ColumnPages(const ParquetFile& file, int64_t row_group, int column,
              const Limits& limits, ColumnBuffers* buffers);

  // Rows of the row group.
  int64_t group_rows() const { return chunk_.group_rows; }
  // Entries of the column chunk, as the footer claims.
  int64_t num_entries() const { return chunk_.num_entries; }

  // Call it before a task's first use of the functions below. The task will read `rows`,
  // as they are stored, or those of them that are selected.
  void BeginTask(DecodeScratch* scratch, const RowRun& rows);

  // Returns the header of the next page, or null at the end of the column chunk. Skips
  // the part of the last page that was not read. If the page is long and likely to be
  // among the next `num_skipped` entries, little more than its header is read from the
  // file.
  const PageHeader* Next(int64_t num_skipped = 0);
  // The offset in the file of the header that Next returned last; in an encrypted column
  // chunk, the number of its page.
  int64_t page_offset() const { return page_offset_; }
  // Bytes of the page that was read last that another reader would read, or decompress,
  // once more to begin within it.
  int64_t restart_bytes() const { return restart_bytes_; }
  // Memory that is held outside the buffers, in an encrypted column chunk.
  int64_t page_reader_bytes() const { return decrypted_ ? decrypted_->held_bytes() : 0; }
  // Makes Next continue at `offset`, an earlier page_offset().
  void Seek(int64_t offset);

  // Makes Next continue at the page with `row`, if an offset index tells of it and it
  // comes after the next page. Returns the first row of that page; else nothing.
  std::optional<int64_t> SeekRow(int64_t row);
  // The offset index, which the pages may contradict. A file may be read in parts that
  // begin at pages of the index, so that only its checks find a page with too few rows or
  // too many.
  IndexedPages& indexed() { return indexed_; }

  // The content of the page that Next returned last. Data pages stay valid until Next or
  // Seek, dictionary pages within the task. The values of a long page may stay in the
  // file. Throws Error(kCorruptFile) if the bytes contradict the header. If the task goes
  // on with the next page, that page may be decompressed together with this one; its
  // errors come when it is read itself.
  PageParts ReadDataPage(bool goes_on);
  std::span<const uint8_t> ReadDictionaryPage();

 private:
  // A page that has been decompressed into `next_page`.
  struct NextPage {
    int64_t offset = kNone;
    PageHeader header;
    CompressedPage page;

    static constexpr int64_t kNone = -1;
  };

  const PageHeader* NextDecrypted();
  void EnterPage();
  std::span<const uint8_t> ReadBody();
  bool StaysInFile() const;
  PageParts ReadInFile();
  void CheckPageBytes(int64_t num_bytes) const;
  void CheckUncompressedBytes(const PageHeader& header) const;
  std::optional<NextPage> ViewNextPage();
  void Decompress(const kernels::CompressedBlock& block);
  void DecompressPair(const kernels::CompressedBlock& block, NextPage next);
  int64_t AheadEnd(int64_t num_skipped) const;

  const ColumnChunk chunk_;
  IndexedPages indexed_;
  const int64_t max_page_bytes_;
  ColumnBuffers* buffers_;
  ReadAhead read_ahead_;
  DecodeScratch* scratch_ = nullptr;
  int64_t task_bytes_ = 0;  // likely bytes of the task's rows in the file
  // Set for an encrypted column chunk, which is not read through `read_ahead_`.
  std::optional<DecryptedPages> decrypted_;
  int64_t page_offset_ = 0;
  int64_t next_offset_ = 0;
  PageHeader header_;
  NextPage next_page_;
  const bool may_stay_in_file_;
  int64_t restart_bytes_ = 0;
};

}  // namespace torchparquet
