#pragma once

#include <cstdint>
#include <optional>
#include <span>

#include "files/parquet_file.h"
#include "pages/column_chunk.h"
#include "pages/decrypted_pages.h"
#include "pages/page_header.h"
#include "pages/read_ahead.h"
#include "scratch.h"

namespace torchparquet {

// The parts of a data page, decompressed. Levels are in the hybrid encoding, and empty
// where the column has none.
struct PageParts {
  std::span<const uint8_t> repetition = {};
  std::span<const uint8_t> definition = {};
  std::span<const uint8_t> values = {};
};

// Walks the pages of one column chunk. One thread's at a time: between two tasks it may
// change the thread. Verifies checksums where present.
class ColumnPages {
 public:
  struct Limits {
    int64_t max_page_bytes;  // decompressed
  };
  // Checks what the footer claims of the column chunk against the file and the row
  // group. `file` and `buffers` must outlive the pages.
  ColumnPages(const ParquetFile& file, int64_t row_group, int column,
              const Limits& limits, ColumnBuffers* buffers);

  // Rows of the row group.
  int64_t group_rows() const { return chunk_.group_rows; }

  // Must be called before a task's first use of what follows. The task will ask for
  // about `num_rows` rows.
  void BeginTask(DecodeScratch* scratch, int64_t num_rows);

  // Returns the header of the next page, passing over whatever of the last page was
  // not asked for; null at the end of the column chunk.
  const PageHeader* Next();
  // Where the header that Next returned last begins in the file; in a column chunk that
  // is encrypted its number.
  int64_t page_offset() const { return page_offset_; }
  // What is held beside the buffers, as of a column chunk that is encrypted.
  int64_t page_reader_bytes() const { return decrypted_ ? decrypted_->held_bytes() : 0; }
  // Makes Next go on at `offset`, which was a page_offset() before.
  void Seek(int64_t offset);

  // The content of the page that Next returned last. Data pages stay valid until Next
  // or Seek, dictionary pages only within the task. Throws Error(kCorruptFile) for
  // bytes that are not what the header says.
  PageParts ReadDataPage();
  std::span<const uint8_t> ReadDictionaryPage();

 private:
  const PageHeader* NextDecrypted();
  std::span<const uint8_t> ReadBody();
  void CheckPageBytes(int64_t num_bytes) const;
  void CheckUncompressedBytes() const;
  std::span<const uint8_t> TakeLevels(std::span<const uint8_t>* body, int max_level,
                                      int encoding) const;
  void RepackLevels(PageParts* parts);
  std::span<const uint8_t> Decompress(std::span<const uint8_t> bytes, int64_t num_bytes,
                                      uint8_t* out);
  PageParts ReadV1(std::span<const uint8_t> body);
  PageParts ReadV2(std::span<const uint8_t> body);
  int64_t AheadEnd() const;

  const ColumnChunk chunk_;
  const Limits limits_;
  ColumnBuffers* buffers_;
  ReadAhead read_ahead_;
  DecodeScratch* scratch_ = nullptr;
  int64_t task_bytes_ = 0;  // that the task's rows are likely to take in the file
  // Of an encrypted column chunk, which is not read through `read_ahead_`.
  std::optional<DecryptedPages> decrypted_;
  int64_t page_offset_ = 0;
  int64_t next_offset_ = 0;
  PageHeader header_;
};

}  // namespace torchparquet
