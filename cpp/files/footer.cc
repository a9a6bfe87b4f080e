#include "files/footer.h"

#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "format/footer_bytes.h"
#include "format/parsed_footer.h"

namespace torchparquet {
namespace {

// Nothing if it is encrypted and there is no key. That is an error only for a reader of
// the column.
std::optional<ChunkFacts> ReadableColumnChunk(const ParquetFile& file, int row_group,
                                              int column) {
  try {
    return file.ColumnChunk(row_group, column);
  } catch (const Error& error) {
    if (error.kind() != ErrorKind::kEncrypted) throw;
    return std::nullopt;
  }
}

// Adds a row group of a parsed footer: its rows, its compressed bytes, which must not be
// negative, and the bytes of each leaf's values. Checks that each column chunk has a
// value, or a null, for each row. Otherwise a row group that claims too few rows would
// silently lose some.
void AddRowGroup(const ParquetFile& file, int row_group, Footer* footer) {
  const RowGroupFacts& group = file.row_groups()[static_cast<size_t>(row_group)];
  footer->leaf_bytes.resize(static_cast<size_t>(group.num_columns));
  int64_t total = 0;
  for (int i = 0; i < group.num_columns; ++i) {
    const auto chunk = ReadableColumnChunk(file, row_group, i);
    if (!chunk) {
      footer->has_hidden_columns = true;
      footer->chunk_num_bytes.push_back(0);
      continue;
    }
    const LeafColumn& leaf = file.leaves().at(static_cast<size_t>(i));
    const auto fail = [&](const std::string& message) {
      throw Error(ErrorKind::kCorruptFile, message,
                  {.row_group = row_group, .column = leaf.path});
    };
    const int64_t num_bytes = chunk->compressed_bytes;
    if (num_bytes < 0 || __builtin_add_overflow(total, num_bytes, &total)) {
      fail("column chunk claims an impossible size: " + std::to_string(num_bytes) +
           " bytes");
    }
    footer->chunk_num_bytes.push_back(num_bytes);
    const bool flat = leaf.element_levels.empty();
    if (flat && chunk->num_values != group.num_rows) {
      fail("column chunk claims " + std::to_string(chunk->num_values) +
           " values in a row group of " + std::to_string(group.num_rows) + " rows");
    }
    footer->leaf_bytes[static_cast<size_t>(i)] +=
        static_cast<double>(chunk->value_bytes());
  }
  footer->row_group_num_rows.push_back(group.num_rows);
  footer->row_group_num_bytes.push_back(total);
}

void AddRowGroups(const ParquetFile& file, Footer* footer) {
  const int num_row_groups = static_cast<int>(file.row_groups().size());
  for (int i = 0; i < num_row_groups; ++i) AddRowGroup(file, i, footer);
}

void TakeRowGroups(FooterScan scan, Footer* footer) {
  footer->row_group_num_rows = std::move(scan.row_group_num_rows);
  footer->row_group_num_bytes = std::move(scan.row_group_num_bytes);
  footer->leaf_bytes = std::move(scan.column_bytes);
  footer->chunk_num_bytes.reserve(scan.chunks.size());
  for (const ChunkPlace& chunk : scan.chunks) {
    footer->chunk_num_bytes.push_back(chunk.compressed_bytes);
  }
}

// Column chunks of a summary need not name the files that they are in.
void CheckNoSummary(std::string_view path) {
  const std::string_view name = path.substr(path.rfind('/') + 1);
  if (name != "_metadata" && name != "_common_metadata") return;
  throw InvalidArgument(
      "the file only describes rows that are stored in other files; give the "
      "path of their directory");
}

}  // namespace

Footer ReadFooter(const PlannedFile& planned, FooterParts parts, KnownSchemas* known,
                  std::shared_ptr<RemoteBlocks> blocks) {
  Footer footer;
  try {
    CheckNoSummary(planned.path);
    auto source = OpenSource(planned, std::move(blocks));
    const FooterBytes bytes(*source);
    footer.identity = source->identity();
    footer.digest = bytes.Digest();
    LoadedFooter loaded =
        LoadFooter(*source, bytes, planned.decryption, parts.parsed, known);
    footer.schema = loaded.schema;
    if (parts.parsed && planned.decryption == nullptr) footer.parsed = loaded.parsed;
    if (loaded.scan) {
      TakeRowGroups(std::move(*loaded.scan), &footer);
    } else {
      AddRowGroups(ParquetFile(std::move(source), planned, std::move(loaded)), &footer);
    }
    if (!parts.chunk_num_bytes) footer.chunk_num_bytes = {};
    if (parts.content) footer.content = bytes.Content();
  } catch (...) {
    footer.error = CurrentErrorAt({.path = planned.path});
  }
  return footer;
}

}  // namespace torchparquet
