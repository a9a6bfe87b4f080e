#include "files/parquet_file.h"

#include <algorithm>
#include <iterator>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>

#include "base/errors.h"
#include "bridge/loaded_library.h"
#include "format/declared_types.h"
#include "format/footer_bytes.h"
#include "remote/blocks/remote_file.h"

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

// `bytes` must outlive what is returned.
std::unique_ptr<ArrowFile> OpenReader(const PlannedFile& planned, const ByteSource& bytes,
                                      int64_t file_bytes, const FooterEnd& footer,
                                      FooterFacts* facts) {
  if (file_bytes == 0)
    throw CorruptFile(
        "empty file (0 bytes); write it again, or leave it out of the paths");
  if (footer.is_encrypted && planned.decryption == nullptr) {
    throw NoKeys("file");
  }
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
                       .page_buffer_bytes = ParquetFile::kAheadBytes,
                       .keys = planned.decryption};
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

}  // namespace

std::unique_ptr<const Source> OpenSource(const PlannedFile& planned,
                                         std::shared_ptr<RemoteReads> reads) {
  if (planned.remote != nullptr) {
    if (reads == nullptr) reads = std::make_shared<RemoteReads>(planned.fetcher);
    return std::make_unique<RemoteFile>(planned.remote, std::move(reads),
                                        planned.identity);
  }
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
  // A summary, such as _metadata, has the footers of other files.
  const std::string& own = file_->path();
  if (!facts.file_path.empty() &&
      facts.file_path != std::string_view(own).substr(own.rfind('/') + 1)) {
    throw Error(ErrorKind::kInvalidArgument,
                "the file only describes rows that are stored in another file; give the "
                "path of that file, or of the directory: '" +
                    Printable(facts.file_path) + "'");
  }
  return facts;
}

ByteRange ParquetFile::ChunkRange(int64_t row_group, int column) const {
  if (row_group < 0 || row_group >= std::ssize(row_groups())) {
    throw CorruptFile("file has only " + std::to_string(row_groups().size()) +
                      " row groups");
  }
  return ChunkRange(ColumnChunk(row_group, column));
}

ByteRange ParquetFile::ChunkRange(const ChunkFacts& chunk) const {
  const int64_t file_bytes = file_->num_bytes();
  ByteRange range{chunk.data_page_offset, chunk.compressed_bytes};
  // Some writers leave the dictionary's offset 0 or unset; it then stands where the
  // data pages are said to begin.
  const int64_t dictionary_offset = chunk.dictionary_page_offset;
  if (dictionary_offset > 0 && dictionary_offset < range.offset)
    range.offset = dictionary_offset;
  if (range.offset < 0 || range.num_bytes < 0 || range.offset > file_bytes ||
      range.num_bytes > file_bytes - range.offset) {
    throw CorruptFile("column chunk lies outside the file: offset " +
                      std::to_string(range.offset) + ", " +
                      std::to_string(range.num_bytes) + " bytes, file of " +
                      std::to_string(file_bytes));
  }
  if (footer_->has_short_chunk_sizes) {
    constexpr int64_t kMaxDictionaryHeaderBytes = 100;
    range.num_bytes += std::min(kMaxDictionaryHeaderBytes, file_bytes - range.end());
  }
  return range;
}

ByteRange ParquetFile::OffsetIndexRange(int64_t row_group, int column) const {
  const ChunkFacts chunk = ColumnChunk(row_group, column);
  const ByteRange range{chunk.offset_index_offset, chunk.offset_index_bytes};
  const bool is_inside =
      range.offset > 0 && range.num_bytes <= file_->num_bytes() - range.offset;
  return chunk.is_encrypted || !is_inside ? ByteRange{} : range;
}

std::shared_ptr<const OffsetIndex> ParquetFile::KnownOffsetIndex(int64_t row_group,
                                                                 int column) const {
  return footer_->offset_indexes->Find(row_group, column).value_or(nullptr);
}

std::shared_ptr<const OffsetIndex> ParquetFile::ReadOffsetIndex(int64_t row_group,
                                                                int column) const {
  if (const auto known = footer_->offset_indexes->Find(row_group, column)) return *known;
  std::shared_ptr<const OffsetIndex> index;
  const ByteRange range = OffsetIndexRange(row_group, column);
  if (range.num_bytes > 0) {
    std::vector<uint8_t> bytes(static_cast<size_t>(range.num_bytes));
    file_->LookAt(range.offset, range.num_bytes, bytes.data());
    const int64_t num_rows = row_groups()[static_cast<size_t>(row_group)].num_rows;
    auto found = OffsetIndex::Parse(bytes, ChunkRange(row_group, column), num_rows);
    if (found) index = std::make_shared<const OffsetIndex>(std::move(*found));
  }
  // That of a file on disk is soon read again.
  if (is_remote_) footer_->offset_indexes->Keep(row_group, column, index);
  return index;
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
    : is_remote_(planned.remote != nullptr),
      file_(std::move(file)),
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
  // Pages of a file with keys are read through what is opened here.
  const FileWithEnd with_end(*file_, bytes.file_end());
  const bool has_keys = planned.decryption != nullptr;
  FooterFacts facts;
  auto reader =
      OpenReader(planned, has_keys ? static_cast<const ByteSource&>(*file_) : with_end,
                 file_->num_bytes(), bytes.end(), &facts);
  CheckRowCounts(facts);
  std::vector<LeafColumn> leaves = DescribeSchema(facts.leaves);
  ReadDeclaredTypes(facts, &leaves);
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
  if (has_keys) reader_ = std::move(reader);
  return footer;
}

}  // namespace torchparquet
