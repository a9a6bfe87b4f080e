#include "files/parquet_file.h"

#include <algorithm>
#include <iterator>
#include <string>
#include <string_view>
#include <utility>

#include "base/errors.h"
#include "bridge/loaded_library.h"
#include "format/footer_bytes.h"
#include "remote/blocks/remote_file.h"

namespace torchparquet {

std::unique_ptr<const Source> OpenSource(const PlannedFile& planned,
                                         std::shared_ptr<RemoteBlocks> blocks) {
  if (planned.remote != nullptr) {
    if (blocks == nullptr) blocks = std::make_shared<RemoteBlocks>(planned.fetcher);
    return std::make_unique<RemoteFile>(planned.remote, std::move(blocks),
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
    throw InvalidArgument(
        "the file only describes rows that are stored in another file; give the "
        "path of that file, or of the directory: '",
        Printable(facts.file_path), "'");
  }
  return facts;
}

ByteRange ParquetFile::ChunkRange(int64_t row_group, int column) const {
  if (row_group < 0 || row_group >= std::ssize(row_groups())) {
    throw CorruptFile("file has only ", row_groups().size(), " row groups");
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
    throw CorruptFile("column chunk lies outside the file: offset ", range.offset, ", ",
                      range.num_bytes, " bytes, file of ", file_bytes);
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
  if (reader_ == nullptr) throw NoKeys("column");
  std::unique_ptr<ArrowPages> pages;
  const std::lock_guard lock(reader_mutex_);
  Check(reader_->OpenPages(static_cast<int>(row_group), column, &pages));
  return pages;
}

ParquetFile::ParquetFile(std::unique_ptr<const Source> file, const PlannedFile& planned,
                         LoadedFooter loaded)
    : is_remote_(planned.remote != nullptr),
      file_(std::move(file)),
      reader_(std::move(loaded.reader)),
      footer_(std::move(loaded.parsed)) {}

ParquetFile::ParquetFile(std::unique_ptr<const Source> file, const PlannedFile& planned,
                         KnownSchemas* schemas, std::shared_ptr<const ParsedFooter> known)
    : is_remote_(planned.remote != nullptr), file_(std::move(file)) {
  if (known != nullptr && planned.decryption == nullptr &&
      known->identity == file_->identity()) {
    footer_ = std::move(known);
    return;
  }
  LoadedFooter loaded = LoadFooter(*file_, FooterBytes(*file_), planned.decryption,
                                   /*for_readers=*/true, schemas);
  reader_ = std::move(loaded.reader);
  footer_ = std::move(loaded.parsed);
}

}  // namespace torchparquet
