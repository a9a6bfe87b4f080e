#pragma once

#include <cstdint>

#include "files/parquet_file.h"
#include "pages/read_ahead.h"

namespace torchparquet {

// A column chunk by its footer, checked.
struct ColumnChunk {
  ByteRange range;
  int64_t pages_end;         // pages begin before it; a page may end after it
  int64_t dictionary_bytes;  // as far as known, else 0
  int64_t group_rows;        // of its row group
  int64_t num_entries;       // values, nulls and empty lists, as claimed
  int codec;                 // a Codec::Number; of pages once decrypted
  bool is_encrypted;
  bool is_compressed;      // once decrypted
  int64_t max_expansion;   // bytes that a compressed byte can become; 0: no useful bound
  bool always_compressed;  // Arrow before 3.0 wrote V2 pages that wrongly deny it
  int max_definition_level;
  int max_repetition_level;
};

// Checks what the footer claims of a column chunk against the file and the row group.
// Throws Error(kCorruptFile), Error(kEncrypted) where no key fits, and
// Error(kNotSupported) for a codec that Arrow was built without.
ColumnChunk DescribeColumnChunk(const ParquetFile& file, int64_t row_group, int column);

}  // namespace torchparquet
