#include "pages/column_pages.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <string>
#include <utility>

#include "bridge/format.h"
#include "errors.h"
#include "kernels/crc32.h"
#include "kernels/levels/bit_packed_levels.h"

namespace torchparquet {
namespace {

using kernels::BitPackedLevels;

// Reads a little-endian 32-bit length at the start of `bytes`.
int64_t ReadLength(std::span<const uint8_t> bytes) {
  if (bytes.size() < 4) throw CorruptFile("page is too short for its levels");
  uint32_t length;
  std::memcpy(&length, bytes.data(), sizeof(length));
  return length;
}

std::span<const uint8_t> TakeFront(std::span<const uint8_t>* bytes, int64_t num_bytes) {
  if (num_bytes < 0 || num_bytes > static_cast<int64_t>(bytes->size())) {
    throw CorruptFile("page is too short for its levels");
  }
  const auto front = bytes->first(static_cast<size_t>(num_bytes));
  *bytes = bytes->subspan(static_cast<size_t>(num_bytes));
  return front;
}

void CopyTo(std::span<const uint8_t> bytes, std::span<uint8_t> out) {
  if (!bytes.empty()) std::memcpy(out.data(), bytes.data(), bytes.size());
}

void CheckChecksum(const PageHeader& header, std::span<const uint8_t> body) {
  if (!header.checksum) return;
  const uint32_t found = kernels::Crc32(body);
  if (found != *header.checksum) {
    throw CorruptFile("page does not match its CRC checksum: " + std::to_string(found) +
                      ", header says " + std::to_string(*header.checksum));
  }
}

int LevelWidth(int max_level) {
  return static_cast<int>(std::bit_width(static_cast<unsigned>(max_level)));
}

}  // namespace

ColumnPages::ColumnPages(const ParquetFile& file, int64_t row_group, int column,
                         const Limits& limits, ColumnBuffers* buffers)
    : chunk_(DescribeColumnChunk(file, row_group, column)),
      index_(file.is_remote() ? file.KnownOffsetIndex(row_group, column)
                              : file.ReadOffsetIndex(row_group, column)),
      limits_(limits),
      buffers_(buffers),
      read_ahead_(&file.file()),
      next_offset_(chunk_.range.offset) {
  if (!chunk_.is_compressed) read_ahead_.Use(&buffers_->file_bytes);
  if (chunk_.is_encrypted) decrypted_.emplace(file, row_group, column);
}

void ColumnPages::BeginTask(DecodeScratch* scratch, const RowRun& rows) {
  scratch_ = scratch;
  task_rows_ = rows;
  scratch->costs.codec = chunk_.codec;
  read_ahead_.CountIn(&scratch->costs);
  const auto share = static_cast<double>(rows.num_rows()) /
                     static_cast<double>(std::max<int64_t>(1, chunk_.group_rows));
  const int64_t data_bytes = chunk_.range.num_bytes - chunk_.dictionary_bytes;
  task_bytes_ = static_cast<int64_t>(static_cast<double>(data_bytes) * share);
  // Compressed bytes are needed only until they are decompressed.
  if (chunk_.is_compressed) read_ahead_.Use(&scratch->file_bytes);
}

// The end of a read that begins at next_offset_: far enough for the bytes that are likely
// to be wanted, near enough for them to stay in a core's L2 cache until then. Most pages
// are as long as the page before: one call reads a long page.
int64_t ColumnPages::AheadEnd(int64_t num_skipped) const {
  constexpr int64_t kMinBytes = int64_t{4} << 10;
  constexpr int64_t kMaxBytes = int64_t{128} << 10;
  const int64_t first_bytes =
      next_offset_ == chunk_.range.offset ? chunk_.dictionary_bytes : 0;
  const int64_t last_page_bytes = header_.header_bytes + header_.compressed_bytes;
  // Most pages have as many entries as the page before. Short pages are read together,
  // also those that are skipped.
  if (num_skipped > 0 && header_.num_values <= num_skipped &&
      last_page_bytes >= 4 * kMinBytes) {
    return std::min(next_offset_ + kMinBytes, chunk_.range.end());
  }
  const bool in_pairs = PageCodec::GainsByPair(chunk_.codec, header_.compressed_bytes,
                                               header_.uncompressed_bytes);
  const int64_t num_pages = in_pairs && task_bytes_ > last_page_bytes ? 2 : 1;
  const int64_t page_bytes = num_pages * (last_page_bytes + last_page_bytes / 16);
  const int64_t likely = std::max(task_bytes_, page_bytes);
  const int64_t most = std::max(kMaxBytes, std::min(page_bytes, 4 * kMaxBytes));
  return std::min(next_offset_ + std::clamp(first_bytes + likely, kMinBytes, most),
                  chunk_.range.end());
}

const PageHeader* ColumnPages::NextDecrypted() {
  const auto header = decrypted_->Next();
  if (!header) return nullptr;
  header_ = *header;
  page_offset_ = decrypted_->number();
  if (page_offset_ == 0) {
    // With the first page, Arrow reads the whole column chunk.
    scratch_->costs.bytes_read += chunk_.range.num_bytes;
    ++scratch_->costs.num_reads;
  }
  CheckPageBytes(header_.uncompressed_bytes);
  return &header_;
}

const PageHeader* ColumnPages::Next(int64_t num_skipped) {
  if (decrypted_) return NextDecrypted();
  if (next_page_.offset == next_offset_) {
    header_ = next_page_.header;
    page_offset_ = next_offset_;
    next_offset_ += header_.header_bytes + header_.compressed_bytes;
    return &header_;
  }
  constexpr int64_t kMaxHeaderBytes = int64_t{16} << 20;
  const int64_t rest_bytes = NextPageLimit() - next_offset_;
  if (rest_bytes <= 0) return nullptr;
  const int64_t ahead_end = WantedEnd(AheadEnd(num_skipped));
  // Few headers are longer than this: only those with long strings in their statistics.
  for (int64_t num_bytes = 256;; num_bytes *= 8) {
    num_bytes = std::min(num_bytes, rest_bytes);
    const auto header =
        ParsePageHeader(read_ahead_.View({next_offset_, num_bytes}, ahead_end));
    if (header) {
      header_ = *header;
      break;
    }
    if (num_bytes == rest_bytes || num_bytes > kMaxHeaderBytes) {
      throw CorruptFile("page header does not end within the column chunk");
    }
  }
  page_offset_ = next_offset_;
  next_offset_ += header_.header_bytes + header_.compressed_bytes;
  if (next_offset_ > chunk_.range.end()) {
    throw CorruptFile("page claims more bytes than its column chunk has left: " +
                      std::to_string(header_.compressed_bytes) + ", " +
                      std::to_string(rest_bytes - header_.header_bytes));
  }
  return &header_;
}

void ColumnPages::Seek(int64_t offset) {
  if (decrypted_) return decrypted_->Seek(offset);
  next_offset_ = offset;
}

std::optional<int64_t> ColumnPages::SeekRow(int64_t row) {
  // The dictionary comes first.
  if (index_ == nullptr || next_offset_ < index_->first_offset()) return std::nullopt;
  if (row >= chunk_.group_rows) return std::nullopt;
  const size_t page = index_->PageOfRow(row);
  const ByteRange bytes = index_->bytes(page);
  if (bytes.offset <= next_offset_) return std::nullopt;
  next_offset_ = bytes.offset;
  return index_->first_row(page);
}

void ColumnPages::CheckRows(int64_t first_row, int64_t num_rows) const {
  if (index_ == nullptr) return;
  const auto page = index_->PageAt(page_offset_);
  if (!page) {
    throw CorruptFile("offset index does not tell of the page at offset " +
                      std::to_string(page_offset_));
  }
  if (index_->bytes(*page).end() != next_offset_) {
    throw CorruptFile("offset index contradicts the page at offset " +
                      std::to_string(page_offset_) + ": the next one begins at " +
                      std::to_string(index_->bytes(*page).end()) + " or at " +
                      std::to_string(next_offset_));
  }
  const int64_t told_rows = index_->end_row(*page) - index_->first_row(*page);
  if (index_->first_row(*page) != first_row)
    ThrowOtherRows(index_->first_row(*page), first_row);
  if (num_rows >= 0 && told_rows != num_rows) {
    ThrowOtherRows(index_->end_row(*page), first_row + num_rows);
  }
}

void ColumnPages::CheckEndRow(int64_t end_row) const {
  if (index_ == nullptr) return;
  const auto page = index_->PageAt(page_offset_);
  if (page && index_->end_row(*page) != end_row) {
    ThrowOtherRows(index_->end_row(*page), end_row);
  }
}

void ColumnPages::CheckRowWithin(int64_t row) const {
  if (index_ == nullptr) return;
  const auto page = index_->PageAt(page_offset_);
  if (page && row > index_->end_row(*page)) ThrowOtherRows(index_->end_row(*page), row);
}

bool ColumnPages::TaskEndsInPage() const {
  if (index_ == nullptr || task_rows_.end == chunk_.group_rows) return false;
  const auto page = index_->PageAt(page_offset_);
  return page && task_rows_.end <= index_->end_row(*page);
}

void ColumnPages::ThrowOtherRows(int64_t told, int64_t found) const {
  throw CorruptFile("offset index contradicts the page at offset " +
                    std::to_string(page_offset_) + ": a border between pages at row " +
                    std::to_string(told) + ", found at row " + std::to_string(found));
}

bool ColumnPages::HasWantedRow(size_t page) const {
  const int64_t begin = std::max(index_->first_row(page), task_rows_.begin);
  const int64_t end = std::min(index_->end_row(page), task_rows_.end);
  if (begin >= end) return false;
  if (limits_.selection == nullptr) return true;
  const RowRun run = limits_.selection->NextRun(begin);
  return run.num_rows() > 0 && run.begin < end;
}

bool ColumnPages::WantsNextPage() const {
  if (index_ == nullptr) return true;
  const auto next = index_->PageAt(next_offset_);
  return next && HasWantedRow(*next);
}

// The latest end of the next page.
int64_t ColumnPages::NextPageLimit() const {
  if (index_ != nullptr) {
    if (next_offset_ < index_->first_offset()) return index_->first_offset();
    if (const auto page = index_->PageAt(next_offset_)) return index_->bytes(*page).end();
  }
  return chunk_.range.end();
}

// Of bytes to read ahead, those before the first page that no row is read from: they may
// not have been fetched.
int64_t ColumnPages::WantedEnd(int64_t ahead_end) const {
  if (index_ == nullptr) return ahead_end;
  if (next_offset_ < index_->first_offset()) {
    return std::min(ahead_end, index_->first_offset());
  }
  const auto first = index_->PageAt(next_offset_);
  if (!first) return ahead_end;
  size_t page = *first;
  while (page < index_->num_pages() && index_->bytes(page).offset < ahead_end &&
         (page == *first || HasWantedRow(page))) {
    ++page;
  }
  return std::min(ahead_end, index_->bytes(page - 1).end());
}

std::span<const uint8_t> ColumnPages::ReadBody() {
  if (decrypted_) return decrypted_->body();
  const auto body = read_ahead_.View(
      {page_offset_ + header_.header_bytes, header_.compressed_bytes}, next_offset_);
  CheckChecksum(header_, body);
  return body;
}

// A page of nulls may have nothing to decompress, not even a codec's frame.
void ColumnPages::Decompress(const kernels::CompressedBlock& block) {
  if (block.bytes.empty() && block.out.empty()) return;
  TaskCosts& costs = scratch_->costs;
  const CostTimer timer(&costs.decompress_time);
  scratch_->codec.Decompress(chunk_.codec, block.bytes, block.out);
  costs.bytes_decompressed += std::ssize(block.out);
  ++costs.num_decompressed;
}

// Keeps the second page if it is good. If it is not, reading it will tell.
void ColumnPages::DecompressPair(const kernels::CompressedBlock& block, NextPage next) {
  // A page of nulls is no block of the codec.
  if (block.out.empty() || next.page.block.out.empty()) return Decompress(block);
  TaskCosts& costs = scratch_->costs;
  const CostTimer timer(&costs.decompress_time);
  const bool is_good =
      scratch_->codec.DecompressPair(chunk_.codec, block, next.page.block);
  costs.bytes_decompressed += std::ssize(block.out);
  ++costs.num_decompressed;
  if (!is_good) return;
  costs.bytes_decompressed += std::ssize(next.page.block.out);
  ++costs.num_decompressed;
  next.page.block.bytes = {};  // the thread's
  next_page_ = next;
}

std::span<const uint8_t> ColumnPages::ReadDictionaryPage() {
  const auto body = ReadBody();
  if (!chunk_.is_compressed) return body;
  CheckUncompressedBytes(header_);
  const auto num_bytes = static_cast<size_t>(header_.uncompressed_bytes);
  const std::span<uint8_t> out(scratch_->page.Reserve(num_bytes), num_bytes);
  Decompress({body, out});
  return out;
}

// Checks a header's claim before memory is taken for it.
void ColumnPages::CheckUncompressedBytes(const PageHeader& header) const {
  const int64_t num_bytes = header.uncompressed_bytes;
  const int64_t expansion = chunk_.max_expansion;
  // A codec adds fewer bytes than this to a short input.
  constexpr int64_t kFrameBytes = 64;
  if (expansion > 0 && num_bytes > header.compressed_bytes * expansion + kFrameBytes) {
    throw CorruptFile("page claims more bytes than its compressed ones can become: " +
                      std::to_string(num_bytes) + ", " +
                      std::to_string(header.compressed_bytes));
  }
  if (num_bytes > chunk_.uncompressed_bytes) {
    throw CorruptFile("page claims more bytes than its column chunk has in all: " +
                      std::to_string(num_bytes) + ", " +
                      std::to_string(chunk_.uncompressed_bytes));
  }
  CheckPageBytes(num_bytes);
}

void ColumnPages::CheckPageBytes(int64_t num_bytes) const {
  if (num_bytes > limits_.max_page_bytes) {
    throw Error(ErrorKind::kOutOfMemory,
                "page needs more than max_memory: " + std::to_string(num_bytes) +
                    " bytes, " + std::to_string(limits_.max_page_bytes));
  }
}

PageParts ColumnPages::ReadDataPage(bool goes_on) {
  if (next_page_.offset == page_offset_) {
    std::swap(buffers_->page, buffers_->next_page);
    return PartsOf(std::exchange(next_page_, {}).page);
  }
  next_page_ = {};
  // Both pages are viewed before this one, whose view is then a part of theirs.
  std::optional<NextPage> next;
  if (goes_on && WantsNextPage()) next = ViewNextPage();
  const auto body = ReadBody();
  if (!chunk_.is_compressed) return ReadStored(body);
  CheckUncompressedBytes(header_);
  const CompressedPage page = LayOut(header_, body, &buffers_->page);
  if (!IsCompressed(header_)) {
    CopyTo(page.block.bytes, page.block.out);
  } else if (next) {
    DecompressPair(page.block, *next);
  } else {
    Decompress(page.block);
  }
  return PartsOf(page);
}

// Returns the page after the present one if it can be decompressed together with it.
// Returns nothing if that page is damaged, too large for the memory, or cannot be read:
// reading it alone will tell.
std::optional<ColumnPages::NextPage> ColumnPages::ViewNextPage() {
  // Longer pages would not stay in a core's cache until their values are read.
  constexpr int64_t kMaxBytes = int64_t{2} << 20;
  constexpr int64_t kMaxHeaderBytes = 1024;
  const int64_t begin = page_offset_ + header_.header_bytes;
  const int64_t header_end = std::min(next_offset_ + kMaxHeaderBytes, NextPageLimit());
  const auto gains = [&](const PageHeader& header) {
    return IsCompressed(header) && header.uncompressed_bytes <= kMaxBytes &&
           PageCodec::GainsByPair(chunk_.codec, header.compressed_bytes,
                                  header.uncompressed_bytes);
  };
  if (!gains(header_)) return {};
  try {
    CheckUncompressedBytes(header_);
    const auto view = read_ahead_.View({begin, header_end - begin}, header_end);
    const auto header =
        ParsePageHeader(view.subspan(static_cast<size_t>(header_.compressed_bytes)));
    if (!header || !header->is_data() || !gains(*header)) return {};
    const int64_t body = next_offset_ + header->header_bytes;
    const int64_t end = body + header->compressed_bytes;
    if (end > chunk_.range.end()) return {};
    CheckUncompressedBytes(*header);
    CheckPageBytes(header_.uncompressed_bytes + header->uncompressed_bytes);
    const auto both = read_ahead_.View({begin, end - begin}, end);
    const auto bytes = both.subspan(static_cast<size_t>(body - begin));
    CheckChecksum(*header, bytes);
    return NextPage{.offset = next_offset_,
                    .header = *header,
                    .page = LayOut(*header, bytes, &buffers_->next_page)};
  } catch (const Error&) {
    return {};
  }
}

// True if the page's values, or all of a V1 page, are compressed.
bool ColumnPages::IsCompressed(const PageHeader& header) const {
  if (header.kind != PageHeader::Kind::kDataV2) return chunk_.is_compressed;
  return chunk_.is_compressed && (header.is_compressed || chunk_.always_compressed);
}

// Takes memory for a page of a compressed column chunk. The levels of a V2 page are not
// compressed. The bytes read ahead belong to the thread, so the levels are copied.
ColumnPages::CompressedPage ColumnPages::LayOut(const PageHeader& header,
                                                std::span<const uint8_t> body,
                                                ScratchBuffer* memory) const {
  const bool is_v2 = header.kind == PageHeader::Kind::kDataV2;
  std::span<const uint8_t> repetition;
  std::span<const uint8_t> definition;
  int64_t num_bytes = header.uncompressed_bytes;
  if (is_v2) {
    repetition = TakeFront(&body, header.repetition_level_bytes);
    definition = TakeFront(&body, header.definition_level_bytes);
    num_bytes -= header.repetition_level_bytes + header.definition_level_bytes;
    if (!IsCompressed(header)) num_bytes = std::ssize(body);
  }
  if (num_bytes < 0) throw CorruptFile("page is too short for its levels");
  uint8_t* out = memory->Reserve(repetition.size() + definition.size() +
                                 static_cast<size_t>(num_bytes));
  CompressedPage page;
  const auto copy = [&](std::span<const uint8_t> levels) {
    const std::span<uint8_t> place(out, levels.size());
    CopyTo(levels, place);
    out += levels.size();
    return place;
  };
  page.repetition = copy(repetition);
  page.definition = copy(definition);
  page.block = {body, {out, static_cast<size_t>(num_bytes)}};
  return page;
}

// The parts of a page that is in its memory.
PageParts ColumnPages::PartsOf(const CompressedPage& page) {
  if (header_.kind != PageHeader::Kind::kDataV2) return PartsOfV1(page.block.out);
  // Some writers store repetition levels although the column has none.
  PageParts parts;
  if (chunk_.max_repetition_level > 0) parts.repetition = page.repetition;
  if (chunk_.max_definition_level > 0) parts.definition = page.definition;
  parts.values = page.block.out;
  return parts;
}

// A page of a column chunk that is not compressed stays where it was read.
PageParts ColumnPages::ReadStored(std::span<const uint8_t> body) {
  if (header_.kind != PageHeader::Kind::kDataV2) return PartsOfV1(body);
  PageParts parts;
  const auto repetition = TakeFront(&body, header_.repetition_level_bytes);
  const auto definition = TakeFront(&body, header_.definition_level_bytes);
  if (chunk_.max_repetition_level > 0) parts.repetition = repetition;
  if (chunk_.max_definition_level > 0) parts.definition = definition;
  parts.values = body;
  return parts;
}

// The parts of a V1 page, which are compressed together.
PageParts ColumnPages::PartsOfV1(std::span<const uint8_t> body) {
  PageParts parts;
  parts.repetition =
      TakeLevels(&body, chunk_.max_repetition_level, header_.repetition_level_encoding);
  parts.definition =
      TakeLevels(&body, chunk_.max_definition_level, header_.definition_level_encoding);
  RepackLevels(&parts);
  parts.values = body;
  return parts;
}

// The levels at the front of a V1 page, as they are stored.
std::span<const uint8_t> ColumnPages::TakeLevels(std::span<const uint8_t>* body,
                                                 int max_level, int encoding) const {
  if (max_level == 0) return {};
  switch (encoding) {
    case Encoding::kRle: {
      const int64_t length = ReadLength(*body);
      TakeFront(body, 4);
      return TakeFront(body, length);
    }
    case Encoding::kBitPacked:
      return TakeFront(body, BitPackedLevels{.bytes = *body,
                                             .width = LevelWidth(max_level),
                                             .num_values = header_.num_values}
                                 .NumBytes());
    default:
      throw CorruptFile(
          "levels are neither RLE nor BIT_PACKED but have encoding number " +
          std::to_string(encoding));
  }
}

// Rewrites levels in the deprecated encoding as the RLE/bit-packing hybrid.
void ColumnPages::RepackLevels(PageParts* parts) {
  const BitPackedLevels repetition{.bytes = parts->repetition,
                                   .width = LevelWidth(chunk_.max_repetition_level),
                                   .num_values = header_.num_values};
  const BitPackedLevels definition{.bytes = parts->definition,
                                   .width = LevelWidth(chunk_.max_definition_level),
                                   .num_values = header_.num_values};
  const auto is_packed = [](const BitPackedLevels& levels, int encoding) {
    return levels.width > 0 && encoding == Encoding::kBitPacked;
  };
  const bool packs_repetition = is_packed(repetition, header_.repetition_level_encoding);
  const bool packs_definition = is_packed(definition, header_.definition_level_encoding);
  if (!packs_repetition && !packs_definition) return;
  const auto repetition_bytes = static_cast<size_t>(repetition.NumRunBytes());
  const auto definition_bytes = static_cast<size_t>(definition.NumRunBytes());
  uint8_t* out = buffers_->levels.Reserve(repetition_bytes + definition_bytes);
  if (packs_repetition) {
    kernels::RepackLevels(repetition, out);
    parts->repetition = {out, repetition_bytes};
    out += repetition_bytes;
  }
  if (packs_definition) {
    kernels::RepackLevels(definition, out);
    parts->definition = {out, definition_bytes};
  }
}

}  // namespace torchparquet
