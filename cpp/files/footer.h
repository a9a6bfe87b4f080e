#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "base/errors.h"
#include "files/parquet_file.h"
#include "format/known_schemas.h"
#include "format/source.h"

namespace torchparquet {

// Parts of footers that few callers need.
struct FooterParts {
  bool chunk_num_bytes = false;
  bool content = false;
  bool parsed = false;  // of files without keys
};

// One file's part of the footers, or why it has none.
struct Footer {
  FileIdentity identity;
  int64_t digest = 0;
  bool has_hidden_columns = false;
  std::vector<int64_t> row_group_num_rows;
  std::vector<int64_t> row_group_num_bytes;
  std::vector<int64_t> chunk_num_bytes;  // empty unless asked for
  std::shared_ptr<const Schema> schema;
  std::vector<double> leaf_bytes;  // empty without row groups
  // The file's bytes from the footer to the end, which make a file without values.
  // Empty unless asked for.
  std::vector<uint8_t> content;
  std::shared_ptr<const ParsedFooter> parsed = nullptr;  // null unless asked for
  std::optional<Error> error;
};

// Reads one file's footer. `known` are schemas of others, and becomes those of this one
// too. A file in a store is read through `blocks`. Whatever is wrong with the file stands
// in the result.
Footer ReadFooter(const PlannedFile& planned, FooterParts parts, KnownSchemas* known,
                  std::shared_ptr<RemoteBlocks> blocks = nullptr);

}  // namespace torchparquet
