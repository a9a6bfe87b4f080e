#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>

#include "byte_window.h"
#include "page_header.h"
#include "parquet_file.h"
#include "scratch.h"

namespace torchparquet {

// The two parts of a data page of a column without repetition, decompressed.
struct PageParts {
  std::span<const uint8_t> levels = {};  // definition levels; empty for a required column
  std::span<const uint8_t> values = {};
  bool bit_packed_levels = false;  // the deprecated encoding of some old writers
};

// Walks the pages of one column chunk. One thread's at a time: between two tasks it may
// change the thread. Verifies checksums where present.
class ColumnPages {
 public:
  // Checks what the footer claims of the column chunk against the file and the row
  // group. `file` and `buffers` must outlive the pages.
  ColumnPages(const ParquetFile& file, int64_t row_group, int column,
              ColumnBuffers* buffers);
  ~ColumnPages();

  // Rows of the row group.
  int64_t group_rows() const;

  // Must be called before a task's first use of what follows. The task will ask for
  // about `num_rows` rows.
  void BeginTask(DecodeScratch* scratch, int64_t num_rows);

  // Returns the header of the next page, passing over whatever of the last page was
  // not asked for; null at the end of the column chunk.
  const PageHeader* Next();
  // Where the header that Next returned last begins in the file.
  int64_t page_offset() const { return page_offset_; }
  // Makes Next go on at `offset`, which was a page_offset() before.
  void Seek(int64_t offset);

  // The content of the page that Next returned last. Data pages stay valid until Next
  // or Seek, dictionary pages only within the task. Throws Error(kCorruptFile) for
  // bytes that are not what the header says.
  PageParts ReadDataPage();
  std::span<const uint8_t> ReadDictionaryPage();

 private:
  struct Chunk;

  std::span<const uint8_t> ReadBody();
  std::span<const uint8_t> Decompress(std::span<const uint8_t> bytes, int64_t num_bytes,
                                      uint8_t* out);
  PageParts ReadV1(std::span<const uint8_t> body);
  PageParts ReadV2(std::span<const uint8_t> body);
  int64_t AheadEnd() const;
  bool is_compressed() const;

  const std::unique_ptr<const Chunk> chunk_;
  ColumnBuffers* buffers_;
  ByteWindow window_;
  DecodeScratch* scratch_ = nullptr;
  int64_t task_bytes_ = 0;  // that the task's rows are likely to take in the file
  int64_t page_offset_ = 0;
  int64_t next_offset_ = 0;
  PageHeader header_;
};

}  // namespace torchparquet
