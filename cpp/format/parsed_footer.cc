#include "format/parsed_footer.h"

#include <algorithm>
#include <iterator>
#include <mutex>
#include <span>
#include <utility>

#include "bridge/loaded_library.h"
#include "format/declared_types.h"

namespace torchparquet {

std::shared_ptr<const Schema> KnownSchemas::Find(const FooterScan& footer) const {
  const std::shared_lock lock(mutex_);
  const auto schema = schemas_.find(footer.schema);
  if (schema == schemas_.end()) return nullptr;
  const auto& [depends_on_arrow, by_arrow_schema] = schema->second;
  const auto found =
      by_arrow_schema.find(depends_on_arrow ? footer.arrow_schema : std::string_view());
  return found == by_arrow_schema.end() ? nullptr : found->second;
}

void KnownSchemas::Add(const FooterScan& footer,
                       const std::shared_ptr<const Schema>& added) {
  const bool depends_on_arrow =
      std::ranges::any_of(added->leaves(), DependsOnArrowSchema);
  const std::lock_guard lock(mutex_);
  auto schema = schemas_.find(footer.schema);
  if (schema == schemas_.end()) {
    if (schemas_.size() >= kMaxSchemas) return;
    schema = schemas_.emplace(footer.schema, Known{.depends_on_arrow = depends_on_arrow})
                 .first;
  }
  auto& known = schema->second.by_arrow_schema;
  if (known.size() >= kMaxSchemas) return;
  known.try_emplace(
      std::string(depends_on_arrow ? footer.arrow_schema : std::string_view()), added);
}

namespace {

void CheckRowCounts(const FooterFacts& facts) {
  int64_t total = 0;
  for (size_t i = 0; i < facts.row_groups.size(); ++i) {
    const int64_t rows = facts.row_groups[i].num_rows;
    if (rows < 0 || __builtin_add_overflow(total, rows, &total)) {
      throw CorruptFile("row group ", i, " claims an impossible row count: ", rows);
    }
  }
  if (total != facts.num_rows) {
    throw CorruptFile("the footer's row count is not the sum of its row groups: ",
                      facts.num_rows, ", ", total);
  }
}

// A file whose end is in memory.
class FileWithEnd : public ByteSource {
 public:
  FileWithEnd(const Source& file, std::span<const uint8_t> end)
      : file_(file), end_(end), end_begin_(file.num_bytes() - std::ssize(end)) {}

  void ReadAt(int64_t offset, int64_t num_bytes, uint8_t* out) const override {
    const int64_t begin = offset - end_begin_;
    if (begin < 0 || num_bytes > std::ssize(end_) - begin) {
      return file_.LookAt(offset, num_bytes, out);
    }
    std::copy_n(end_.begin() + begin, num_bytes, out);
  }

 private:
  const Source& file_;
  const std::span<const uint8_t> end_;
  const int64_t end_begin_;
};

// `bytes` must outlive what is returned.
std::unique_ptr<ArrowFile> OpenReader(const ByteSource& bytes, int64_t file_bytes,
                                      const FooterEnd& footer,
                                      const std::shared_ptr<const FileKeys>& keys,
                                      FooterFacts* facts) {
  if (file_bytes == 0)
    throw CorruptFile(
        "empty file (0 bytes); write it again, or leave it out of the paths");
  if (footer.is_encrypted && keys == nullptr) throw NoKeys("file");
  // Arrow would read as many bytes as the end of such a file says.
  if (footer.num_bytes == 0) {
    throw CorruptFile(
        "not a Parquet file, or only the beginning of one: it does not end with a "
        "footer; "
        "copy or write it again, or leave it out of the paths");
  }
  std::unique_ptr<ArrowFile> opened;
  ArrowOpening opening{.file_bytes = file_bytes,
                       .footer_bytes = footer.num_bytes,
                       .page_buffer_bytes = LoadedFooter::kAheadBytes,
                       .keys = keys};
  const Failure failure = Arrow().Open(bytes, opening, &opened, facts);
  if (opening.keys != nullptr && IsOfContent(failure)) {
    if (footer.is_encrypted) throw KeysDoNotFit("file", failure);
    // Throws for a file that nobody can read. Otherwise the problem is a plain footer
    // that the key did not sign, or a plain file that should be encrypted.
    opening.keys = nullptr;
    Check(Arrow().Open(bytes, opening, &opened, facts));
    throw Error(ErrorKind::kEncrypted,
                "file does not fit decryption_properties: " + Printable(failure.message));
  }
  Check(failure);
  return opened;
}

// Reads a footer by Arrow: its schema, and all else for a reader.
void ParseFooter(const Source& file, const FooterBytes& bytes,
                 const std::shared_ptr<const FileKeys>& keys, LoadedFooter* loaded) {
  const FileWithEnd with_end(file, bytes.file_end());
  FooterFacts facts;
  // With keys, pages are read through what is opened here.
  auto reader =
      OpenReader(keys != nullptr ? static_cast<const ByteSource&>(file) : with_end,
                 file.num_bytes(), bytes.end(), keys, &facts);
  CheckRowCounts(facts);
  std::vector<LeafColumn> leaves = DescribeSchema(facts.leaves);
  ReadDeclaredTypes(facts, &leaves);
  loaded->schema = std::make_shared<const Schema>(std::move(leaves));
  loaded->parsed = std::make_shared<const ParsedFooter>(
      ParsedFooter{.identity = file.identity(),
                   .num_bytes = facts.num_bytes,
                   .has_encrypted_parts = facts.has_encrypted_parts,
                   .has_short_chunk_sizes = facts.has_short_chunk_sizes,
                   .has_wrong_compressed_flags = facts.has_wrong_compressed_flags,
                   .row_groups = std::move(facts.row_groups),
                   .schema = loaded->schema,
                   .arrow_chunks = reader->chunks()});
  if (keys != nullptr) loaded->reader = std::move(reader);
}

}  // namespace

Error NoKeys(const std::string& what) {
  return Error(ErrorKind::kEncrypted,
               what + " is encrypted and needs its keys: give decryption_properties");
}

Error KeysDoNotFit(const std::string& what, const Failure& failure) {
  return Error(ErrorKind::kEncrypted,
               what + " is encrypted, and decryption_properties do not decrypt it: " +
                   Printable(failure.message));
}

bool IsOfContent(const Failure& failure) {
  return failure.kind == Failure::Kind::kFailed;
}

Failure ParsedFooter::Describe(int64_t row_group, int column, ChunkFacts* facts) const {
  if (arrow_chunks != nullptr) {
    return arrow_chunks->Describe(static_cast<int>(row_group), column, facts);
  }
  const auto index = static_cast<size_t>(row_group) * schema->leaves().size() +
                     static_cast<size_t>(column);
  *facts = ChunkFacts{chunks[index]};
  return {};
}

int64_t ParsedFooter::MemoryBytes() const {
  constexpr int64_t kArrowFactor = 20;
  const auto own =
      static_cast<int64_t>(sizeof(*this) + row_groups.capacity() * sizeof(RowGroupFacts) +
                           chunks.capacity() * sizeof(ChunkPlace));
  return arrow_chunks == nullptr ? own : own + kArrowFactor * num_bytes;
}

bool Fits(const FooterScan& scan, const Schema& schema) {
  const std::vector<LeafColumn>& leaves = schema.leaves();
  if (scan.num_column_orders.value_or(leaves.size()) != leaves.size()) return false;
  if (scan.row_group_num_rows.empty()) return true;
  if (scan.has_value_per_row.size() != leaves.size()) return false;
  for (size_t i = 0; i < leaves.size(); ++i) {
    const bool is_flat = leaves[i].element_levels.empty();
    if (is_flat && !scan.has_value_per_row[i]) return false;
  }
  return true;
}

ParsedFooter FooterOf(const FooterScan& scan, int64_t num_bytes,
                      const FileIdentity& identity,
                      std::shared_ptr<const Schema> schema) {
  ParsedFooter footer{.identity = identity, .num_bytes = num_bytes};
  footer.row_groups.reserve(scan.row_group_num_rows.size());
  const auto num_columns = static_cast<int>(schema->leaves().size());
  for (const int64_t rows : scan.row_group_num_rows) {
    footer.row_groups.push_back({rows, num_columns});
  }
  footer.schema = std::move(schema);
  footer.chunks = scan.chunks;
  return footer;
}

LoadedFooter LoadFooter(const Source& file, const FooterBytes& bytes,
                        const std::shared_ptr<const FileKeys>& keys, bool for_readers,
                        KnownSchemas* schemas) {
  LoadedFooter loaded;
  std::optional<FooterScan>& scan = loaded.scan;
  if (keys == nullptr) scan = bytes.Scan();
  if (scan && schemas != nullptr) loaded.schema = schemas->Find(*scan);
  const bool by_arrow = for_readers && scan && scan->may_have_old_writer;
  if (loaded.schema == nullptr || by_arrow || !Fits(*scan, *loaded.schema)) {
    ParseFooter(file, bytes, keys, &loaded);
    if (scan && schemas != nullptr) schemas->Add(*scan, loaded.schema);
  }
  if (scan && !Fits(*scan, *loaded.schema)) scan.reset();
  if (for_readers && scan && !by_arrow) {
    loaded.parsed = std::make_shared<const ParsedFooter>(
        FooterOf(*scan, bytes.end().num_bytes, file.identity(), loaded.schema));
  }
  return loaded;
}

}  // namespace torchparquet
