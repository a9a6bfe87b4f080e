#include "files/parquet_file.h"

#include <optional>
#include <string>
#include <utility>

#include "bridge/loaded_library.h"
#include "errors.h"
#include "footers/declared_lengths.h"
#include "footers/footer_bytes.h"

namespace torchparquet {
namespace {

void CheckRowCounts(const FooterFacts& facts) {
  int64_t total = 0;
  for (size_t i = 0; i < facts.row_groups.size(); ++i) {
    const int64_t rows = facts.row_groups[i].num_rows;
    if (rows < 0 || __builtin_add_overflow(total, rows, &total)) {
      throw CorruptFile("row group " + std::to_string(i) +
                        " claims an impossible row count: " + std::to_string(rows));
    }
  }
  if (total != facts.num_rows) {
    throw CorruptFile("the footer's row count is not the sum of its row groups: " +
                      std::to_string(facts.num_rows) + ", " + std::to_string(total));
  }
}

Error NoKeys(const std::string& what) {
  return Error(ErrorKind::kEncrypted,
               what + " is encrypted and needs its keys: give decryption_properties");
}

Error KeysDoNotFit(const std::string& what, const Failure& failure) {
  return Error(ErrorKind::kEncrypted,
               what + " is encrypted, and decryption_properties do not decrypt it: " +
                   Printable(failure.message));
}

// A failure for want of memory says nothing of keys.
bool IsOfContent(const Failure& failure) {
  return failure.kind == Failure::Kind::kFailed;
}

std::unique_ptr<ArrowFile> OpenReader(const PlannedFile& planned, const Source& file,
                                      const FooterEnd& footer, FooterFacts* facts) {
  if (file.num_bytes() == 0) throw CorruptFile("empty file (0 bytes)");
  if (footer.is_encrypted && planned.decryption == nullptr) {
    throw NoKeys("file");
  }
  // Arrow would read as many bytes as the end of such a file says.
  if (footer.num_bytes == 0) {
    throw CorruptFile("file does not end with a Parquet footer");
  }
  std::unique_ptr<ArrowFile> opened;
  ArrowOpening opening{.file_bytes = file.num_bytes(),
                       .footer_bytes = footer.num_bytes,
                       .page_buffer_bytes = ParquetFile::kAheadBytes,
                       .keys = planned.decryption};
  const Failure failure = Arrow().Open(file, opening, &opened, facts);
  if (opening.keys != nullptr && IsOfContent(failure)) {
    if (footer.is_encrypted) throw KeysDoNotFit("file", failure);
    // Throws for a file that nobody can read. Otherwise the problem is a plain footer
    // that the key did not sign, or a plain file that should be encrypted.
    opening.keys = nullptr;
    Check(Arrow().Open(file, opening, &opened, facts));
    throw Error(ErrorKind::kEncrypted,
                "file does not fit decryption_properties: " + Printable(failure.message));
  }
  Check(failure);
  return opened;
}

}  // namespace

std::unique_ptr<const Source> OpenSource(const PlannedFile& planned) {
  if (planned.memory) {
    return std::make_unique<MemoryFile>(planned.path, *planned.memory, planned.identity);
  }
  return std::make_unique<LocalFile>(planned.path, planned.identity);
}

ChunkFacts ParquetFile::ColumnChunk(int64_t row_group, int column) const {
  ChunkFacts facts;
  const Failure failure = footer_->Describe(row_group, column, &facts);
  if (IsOfContent(failure)) {
    // Arrow reports a missing key like any other failure.
    if (reader_ != nullptr) throw KeysDoNotFit("column", failure);
    if (footer_->has_encrypted_parts) throw NoKeys("column");
  }
  Check(failure);
  return facts;
}

std::unique_ptr<ArrowPages> ParquetFile::OpenPages(int64_t row_group, int column) const {
  if (reader_ == nullptr) {
    throw NoKeys("column");
  }
  std::unique_ptr<ArrowPages> pages;
  const std::lock_guard lock(reader_mutex_);
  Check(reader_->OpenPages(static_cast<int>(row_group), column, &pages));
  return pages;
}

ParquetFile::ParquetFile(std::unique_ptr<const Source> file, const PlannedFile& planned,
                         KnownSchemas* schemas, std::shared_ptr<const ParsedFooter> known)
    : file_(std::move(file)),
      footer_(known != nullptr && planned.decryption == nullptr &&
                      known->identity == file_->identity()
                  ? std::move(known)
                  : ParseFooter(planned, schemas)) {}

// Sets reader_ for a file with keys.
std::shared_ptr<const ParsedFooter> ParquetFile::ParseFooter(const PlannedFile& planned,
                                                             KnownSchemas* schemas) {
  const FooterBytes bytes(*file_);
  std::optional<FooterScan> scan;
  if (planned.decryption == nullptr) scan = bytes.Scan();
  const auto known = scan && schemas != nullptr ? schemas->Find(*scan) : nullptr;
  const auto scanned = [&](const std::shared_ptr<const Schema>& schema) {
    return std::make_shared<const ParsedFooter>(
        FooterOf(*scan, bytes.end().num_bytes, file_->identity(), schema));
  };
  const bool is_usable = scan && !scan->may_have_old_writer;
  if (is_usable && known != nullptr && Fits(*scan, *known)) return scanned(known);
  FooterFacts facts;
  auto reader = OpenReader(planned, *file_, bytes.end(), &facts);
  CheckRowCounts(facts);
  std::vector<LeafColumn> leaves = DescribeSchema(facts.leaves);
  ReadDeclaredLengths(facts, &leaves);
  auto schema = std::make_shared<const Schema>(std::move(leaves));
  if (scan && schemas != nullptr) schemas->Add(*scan, schema);
  if (is_usable && Fits(*scan, *schema)) return scanned(schema);
  auto footer = std::make_shared<ParsedFooter>();
  footer->identity = file_->identity();
  footer->num_bytes = facts.num_bytes;
  footer->has_encrypted_parts = facts.has_encrypted_parts;
  footer->has_short_chunk_sizes = facts.has_short_chunk_sizes;
  footer->has_wrong_compressed_flags = facts.has_wrong_compressed_flags;
  footer->row_groups = std::move(facts.row_groups);
  footer->schema = std::move(schema);
  footer->arrow_chunks = reader->chunks();
  if (planned.decryption != nullptr) reader_ = std::move(reader);
  return footer;
}

}  // namespace torchparquet
