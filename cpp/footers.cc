#include "footers.h"

#include <parquet/metadata.h>
#include <parquet/schema.h>
#include <parquet/size_statistics.h>
#include <parquet/xxhasher.h>

#include <algorithm>
#include <atomic>
#include <memory>
#include <optional>
#include <string_view>
#include <system_error>
#include <thread>

#include "declared_lengths.h"
#include "errors.h"

namespace torchparquet {
namespace {

// One file's part of the footers, or why it has none.
struct Footer {
  FileIdentity identity;
  int64_t digest = 0;
  bool has_hidden_columns = false;
  std::vector<int64_t> row_group_num_rows;
  std::vector<int64_t> row_group_num_bytes;
  std::vector<LeafColumn> schema;
  std::vector<double> leaf_bytes;
  std::optional<Error> error;
};

// What the values of a column chunk take, dictionaries resolved where the writer says so.
double ValueBytes(const parquet::ColumnChunkMetaData& chunk) {
  if (const auto sizes = chunk.size_statistics();
      sizes != nullptr && sizes->unencoded_byte_array_data_bytes) {
    return static_cast<double>(
        std::max<int64_t>(*sizes->unencoded_byte_array_data_bytes, 0));
  }
  return static_cast<double>(std::max<int64_t>(chunk.total_uncompressed_size(), 0));
}

// Null where it is encrypted and there is no key: an error only for who reads it.
std::unique_ptr<parquet::ColumnChunkMetaData> ReadableColumnChunk(
    const ParquetFile& file, const parquet::RowGroupMetaData& group, int column) {
  try {
    return file.ColumnChunk(group, column);
  } catch (const Error& error) {
    if (error.kind() != ErrorKind::kEncrypted) throw;
    return nullptr;
  }
}

// Adds a row group: its rows, its compressed bytes, which must be a number, and what each
// leaf's values take. Checks that its column chunks hold a value, or a null, for each of
// its rows. A row group that claims fewer would be passed over in silence.
void AddRowGroup(const ParquetFile& file, int row_group, Footer* footer) {
  const parquet::FileMetaData& metadata = file.metadata();
  const auto group = metadata.RowGroup(row_group);
  footer->leaf_bytes.resize(static_cast<size_t>(group->num_columns()));
  int64_t total = 0;
  for (int i = 0; i < group->num_columns(); ++i) {
    const auto chunk = ReadableColumnChunk(file, *group, i);
    if (chunk == nullptr) {
      footer->has_hidden_columns = true;
      continue;
    }
    const auto fail = [&](const std::string& message) {
      throw Error(
          ErrorKind::kCorruptFile, message,
          {.row_group = row_group, .column = chunk->path_in_schema()->ToDotString()});
    };
    const int64_t num_bytes = chunk->total_compressed_size();
    if (num_bytes < 0 || __builtin_add_overflow(total, num_bytes, &total)) {
      fail("column chunk claims an impossible size: " + std::to_string(num_bytes) +
           " bytes");
    }
    const bool flat = metadata.schema()->Column(i)->max_repetition_level() == 0;
    if (flat && chunk->num_values() != group->num_rows()) {
      fail("column chunk claims " + std::to_string(chunk->num_values()) +
           " values in a row group of " + std::to_string(group->num_rows()) + " rows");
    }
    footer->leaf_bytes[static_cast<size_t>(i)] += ValueBytes(*chunk);
  }
  footer->row_group_num_rows.push_back(group->num_rows());
  footer->row_group_num_bytes.push_back(total);
}

// Of the footer as it stands in the file. Sizes, places and statistics of all column
// chunks are in there, so that other values hardly ever have the same.
int64_t DigestFooter(const ParquetFile& file) {
  std::vector<uint8_t> bytes(static_cast<size_t>(file.footer_bytes()));
  file.file().ReadAt(file.footer_begin(), file.footer_bytes(), bytes.data());
  return static_cast<int64_t>(parquet::XxHasher().Hash(
      std::string_view(reinterpret_cast<const char*>(bytes.data()), bytes.size())));
}

Footer ReadFooter(const PlannedFile& planned) {
  Footer footer;
  try {
    const ParquetFile file(planned);
    const parquet::FileMetaData& metadata = file.metadata();
    footer.identity = file.file().identity();
    footer.digest = DigestFooter(file);
    footer.schema = file.leaves();
    ReadDeclaredLengths(metadata, &footer.schema);
    for (int i = 0; i < metadata.num_row_groups(); ++i) {
      AddRowGroup(file, i, &footer);
    }
  } catch (...) {
    footer.error = CurrentErrorAt({.path = planned.path});
  }
  return footer;
}

// Numbers a schema among the distinct ones, of which there are few.
int64_t NumberSchema(std::vector<LeafColumn> schema,
                     std::vector<std::vector<LeafColumn>>* schemas) {
  const auto found = std::find(schemas->begin(), schemas->end(), schema);
  const int64_t number = found - schemas->begin();
  if (found == schemas->end()) schemas->push_back(std::move(schema));
  return number;
}

void Append(Footer footer, Footers* out) {
  if (footer.error) throw *footer.error;
  int64_t num_rows = 0;
  for (const int64_t rows : footer.row_group_num_rows) num_rows += rows;
  out->file_num_bytes.push_back(footer.identity.num_bytes);
  out->file_mtime_ns.push_back(footer.identity.mtime_ns);
  out->file_inode.push_back(footer.identity.inode);
  out->file_digest.push_back(footer.digest);
  out->file_has_hidden_columns.push_back(footer.has_hidden_columns);
  out->file_num_rows.push_back(num_rows);
  out->file_num_row_groups.push_back(
      static_cast<int64_t>(footer.row_group_num_rows.size()));
  const int64_t schema = NumberSchema(std::move(footer.schema), &out->schemas);
  out->file_schema.push_back(schema);
  out->schema_leaf_bytes.resize(out->schemas.size());
  std::vector<double>& leaf_bytes = out->schema_leaf_bytes[static_cast<size_t>(schema)];
  leaf_bytes.resize(out->schemas[static_cast<size_t>(schema)].size());
  for (size_t i = 0; i < footer.leaf_bytes.size(); ++i) {
    leaf_bytes[i] += footer.leaf_bytes[i];
  }
  out->row_group_num_rows.insert(out->row_group_num_rows.end(),
                                 footer.row_group_num_rows.begin(),
                                 footer.row_group_num_rows.end());
  out->row_group_num_bytes.insert(out->row_group_num_bytes.end(),
                                  footer.row_group_num_bytes.begin(),
                                  footer.row_group_num_bytes.end());
}

}  // namespace

Footers ReadFooters(const std::vector<PlannedFile>& files, int64_t num_threads) {
  std::vector<Footer> footers(files.size());
  std::atomic<size_t> next{0};
  const auto read = [&] {
    // Relaxed: joining the threads publishes what they wrote.
    for (size_t i = next.fetch_add(1, std::memory_order_relaxed); i < files.size();
         i = next.fetch_add(1, std::memory_order_relaxed)) {
      footers[i] = ReadFooter(files[i]);
    }
  };
  {
    const auto num_files = static_cast<int64_t>(files.size());
    std::vector<std::jthread> threads;
    for (int64_t i = 1; i < std::min(num_threads, num_files); ++i) {
      try {
        threads.emplace_back(read);
      } catch (const std::system_error&) {
        break;  // fewer threads read everything too
      }
    }
    read();
  }
  Footers out;
  for (Footer& footer : footers) Append(std::move(footer), &out);
  return out;
}

}  // namespace torchparquet
