#include "files/footers.h"

#include <algorithm>
#include <optional>
#include <string>
#include <string_view>
#include <system_error>
#include <thread>
#include <utility>

#include "base/errors.h"
#include "format/footer_bytes.h"
#include "remote/blocks/remote_file.h"

namespace torchparquet {
namespace {

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
    const auto fail = [&](auto... parts) {
      throw Error(ErrorKind::kCorruptFile, Text(parts...),
                  {.row_group = row_group, .column = leaf.path});
    };
    const int64_t num_bytes = chunk->compressed_bytes;
    if (num_bytes < 0 || __builtin_add_overflow(total, num_bytes, &total)) {
      fail("column chunk claims an impossible size: ", num_bytes, " bytes");
    }
    footer->chunk_num_bytes.push_back(num_bytes);
    const bool flat = leaf.element_levels.empty();
    if (flat && chunk->num_values != group.num_rows) {
      fail("column chunk claims ", chunk->num_values, " values in a row group of ",
           group.num_rows, " rows");
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

// Reads one file's footer. `known` are schemas of others, and becomes those of this one
// too. A file in a store is read through `blocks`. Whatever is wrong with the file stands
// in the result.
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

using SharedSchema = std::shared_ptr<const Schema>;

// Numbers a schema among the distinct schemas, of which there are few.
size_t NumberSchema(const SharedSchema& schema, std::vector<SharedSchema>* schemas) {
  const auto found = std::ranges::find_if(*schemas, [&](const SharedSchema& other) {
    return other == schema || *other == *schema;
  });
  const auto number = static_cast<size_t>(found - schemas->begin());
  if (found == schemas->end()) schemas->push_back(schema);
  return number;
}

void Append(Footer footer, std::vector<SharedSchema>* schemas, int64_t* parsed_bytes,
            Footers* out) {
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
  const size_t schema = NumberSchema(footer.schema, schemas);
  out->file_schema.push_back(static_cast<int64_t>(schema));
  out->schema_leaf_bytes.resize(schemas->size());
  std::vector<double>& leaf_bytes = out->schema_leaf_bytes[schema];
  leaf_bytes.resize(footer.schema->leaves().size());
  for (size_t i = 0; i < footer.leaf_bytes.size(); ++i) {
    leaf_bytes[i] += footer.leaf_bytes[i];
  }
  out->row_group_num_rows.insert(out->row_group_num_rows.end(),
                                 footer.row_group_num_rows.begin(),
                                 footer.row_group_num_rows.end());
  out->row_group_num_bytes.insert(out->row_group_num_bytes.end(),
                                  footer.row_group_num_bytes.begin(),
                                  footer.row_group_num_bytes.end());
  out->chunk_num_bytes.insert(out->chunk_num_bytes.end(), footer.chunk_num_bytes.begin(),
                              footer.chunk_num_bytes.end());
  out->contents.push_back(std::move(footer.content));
  if (footer.parsed != nullptr) {
    *parsed_bytes += footer.parsed->MemoryBytes();
    if (*parsed_bytes > Footers::kMaxParsedBytes) footer.parsed = nullptr;
  }
  out->parsed.push_back(std::move(footer.parsed));
}

// The ends of files in stores, which hold their footers, as they are asked for: many at
// once, since each takes a round trip.
class FileEnds {
 public:
  static constexpr size_t kMaxInFlight = 256;

  FileEnds(const std::vector<PlannedFile>& files, FootersStop* stop)
      : files_(files), stop_(stop), blocks_(files.size()) {}

  // Null for a file that is in no store. Asks for the ends of the following files too.
  std::shared_ptr<RemoteBlocks> Of(size_t file) {
    const std::lock_guard lock(mutex_);
    for (; next_ < std::min(files_.size(), file + kMaxInFlight); ++next_) Ask(next_);
    return std::move(blocks_[file]);
  }

 private:
  void Ask(size_t number) {
    const PlannedFile& file = files_[number];
    if (file.remote == nullptr) return;
    blocks_[number] = std::make_shared<RemoteBlocks>(file.fetcher);
    if (stop_ != nullptr && !stop_->Add(blocks_[number])) blocks_[number]->Stop();
    const ByteRange end = RemoteFile::FooterRange(*file.remote);
    if (end.num_bytes == 0) return;
    static_cast<void>(blocks_[number]->Hold(file.remote, end).release());  // to its end
  }

  const std::vector<PlannedFile>& files_;
  FootersStop* const stop_;
  std::mutex mutex_;
  size_t next_ = 0;                                    // guarded by mutex_
  std::vector<std::shared_ptr<RemoteBlocks>> blocks_;  // guarded by mutex_
};

// Not std::jthread, which not every C++ library has.
struct JoinedThreads {
  std::vector<std::thread> threads = {};

  JoinedThreads() = default;
  JoinedThreads(const JoinedThreads&) = delete;
  JoinedThreads& operator=(const JoinedThreads&) = delete;
  ~JoinedThreads() {
    for (std::thread& thread : threads) thread.join();
  }
};

}  // namespace

void FootersStop::Stop() {
  std::vector<std::shared_ptr<RemoteBlocks>> blocks;
  {
    const std::lock_guard lock(mutex_);
    is_stopped_ = true;
    blocks.swap(blocks_);
  }
  for (const auto& one : blocks) one->Stop();
}

bool FootersStop::Add(const std::shared_ptr<RemoteBlocks>& blocks) {
  const std::lock_guard lock(mutex_);
  if (is_stopped()) return false;
  // Those that are over hold no fetch.
  std::erase_if(blocks_, [](const auto& held) { return held.use_count() == 1; });
  blocks_.push_back(blocks);
  return true;
}

Footers ReadFooters(const std::vector<PlannedFile>& files, FooterParts parts,
                    int64_t num_threads, FootersStop* stop) {
  std::vector<Footer> footers(files.size());
  KnownSchemas known;
  FileEnds ends(files, stop);
  std::atomic<size_t> next{0};
  const auto read = [&] {
    // Relaxed: joining the threads publishes what they wrote.
    for (size_t i = next.fetch_add(1, std::memory_order_relaxed); i < files.size();
         i = next.fetch_add(1, std::memory_order_relaxed)) {
      if (stop != nullptr && stop->is_stopped()) return;
      try {
        footers[i] = ReadFooter(files[i], parts, &known, ends.Of(i));
      } catch (...) {  // a thread must not end by an exception
        footers[i].error = CurrentErrorAt({});
      }
    }
  };
  {
    const auto num_files = static_cast<int64_t>(files.size());
    JoinedThreads joined;
    for (int64_t i = 1; i < std::min(num_threads, num_files); ++i) {
      try {
        joined.threads.emplace_back(read);
      } catch (const std::system_error&) {
        break;  // fewer threads read all files too
      }
    }
    read();
  }
  if (stop != nullptr && stop->is_stopped()) {
    throw Error(ErrorKind::kStopped, "the reading of footers was stopped");
  }
  Footers out;
  std::vector<SharedSchema> schemas;
  int64_t parsed_bytes = 0;
  for (Footer& footer : footers) Append(std::move(footer), &schemas, &parsed_bytes, &out);
  for (const SharedSchema& schema : schemas) out.schemas.push_back(schema->leaves());
  return out;
}

}  // namespace torchparquet
