#include "pages/column_pages.h"

#include <algorithm>
#include <string>
#include <utility>

#include "base/errors.h"
#include "bridge/format.h"
#include "kernels/crc32.h"

namespace torchparquet {
namespace {

void CheckChecksum(const PageHeader& header, std::span<const uint8_t> body) {
  if (!header.checksum) return;
  const uint32_t found = kernels::Crc32(body);
  if (found != *header.checksum) {
    throw CorruptFile("page does not match its CRC checksum: ", found, ", header says ",
                      *header.checksum);
  }
}

// True for columns whose PLAIN values may be read piece by piece: not for single bits,
// and not for decimals of any length.
bool IsReadByPieces(const LeafColumn& leaf) {
  return leaf.physical != PhysicalType::kBoolean &&
         (leaf.physical != PhysicalType::kByteArray || leaf.is_bytes());
}

}  // namespace

ColumnPages::ColumnPages(const ParquetFile& file, int64_t row_group, int column,
                         const Limits& limits, ColumnBuffers* buffers)
    : chunk_(DescribeColumnChunk(file, row_group, column)),
      indexed_(file, row_group, column, limits.wanted),
      max_page_bytes_(limits.max_page_bytes),
      buffers_(buffers),
      read_ahead_(&file.file()),
      next_offset_(chunk_.range.offset),
      may_stay_in_file_(IsReadByPieces(file.leaves()[static_cast<size_t>(column)])) {
  if (!chunk_.is_compressed) read_ahead_.Use(&buffers_->file_bytes);
  if (chunk_.is_encrypted) decrypted_.emplace(file, row_group, column);
}

void ColumnPages::BeginTask(DecodeScratch* scratch, const RowRun& rows) {
  scratch_ = scratch;
  indexed_.BeginTask(rows);
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

// The page that begins at next_offset_ and has the header at hand is the present one.
void ColumnPages::EnterPage() {
  const ByteRange page{next_offset_, header_.header_bytes + header_.compressed_bytes};
  page_offset_ = page.offset;
  next_offset_ = page.end();
  indexed_.Enter(page);
}

const PageHeader* ColumnPages::Next(int64_t num_skipped) {
  if (decrypted_) return NextDecrypted();
  if (next_page_.offset == next_offset_) {
    header_ = next_page_.header;
    EnterPage();
    return &header_;
  }
  constexpr int64_t kMaxHeaderBytes = int64_t{16} << 20;
  if (next_offset_ >= chunk_.pages_end) return nullptr;
  const int64_t rest_bytes =
      indexed_.LatestEnd(next_offset_, chunk_.range.end()) - next_offset_;
  const int64_t ahead_end = indexed_.WantedEnd(next_offset_, AheadEnd(num_skipped));
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
  EnterPage();
  if (next_offset_ > chunk_.range.end()) {
    throw CorruptFile("page claims more bytes than its column chunk has left: ",
                      header_.compressed_bytes, ", ", rest_bytes - header_.header_bytes);
  }
  return &header_;
}

void ColumnPages::Seek(int64_t offset) {
  if (decrypted_) return decrypted_->Seek(offset);
  next_offset_ = offset;
}

std::optional<int64_t> ColumnPages::SeekRow(int64_t row) {
  const auto page = indexed_.Later(next_offset_, row);
  if (!page) return std::nullopt;
  next_offset_ = page->offset;
  return page->first_row;
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
    throw CorruptFile("page claims more bytes than its compressed ones can become: ",
                      num_bytes, ", ", header.compressed_bytes);
  }
  CheckPageBytes(num_bytes);
}

void ColumnPages::CheckPageBytes(int64_t num_bytes) const {
  if (num_bytes > max_page_bytes_) {
    throw Error(ErrorKind::kOutOfMemory, Text("page needs more than max_memory: ",
                                              num_bytes, " bytes, ", max_page_bytes_));
  }
}

// True for a long page of values that are stored as they are. A checksum is compared
// before the first value is delivered, which takes the whole page.
bool ColumnPages::StaysInFile() const {
  constexpr int64_t kLongBytes = int64_t{4} << 20;
  const bool has_packed_levels =
      header_.definition_level_encoding == Encoding::kBitPacked ||
      header_.repetition_level_encoding == Encoding::kBitPacked;
  return may_stay_in_file_ && !chunk_.is_compressed && !decrypted_ && !header_.checksum &&
         header_.encoding == Encoding::kPlain && !has_packed_levels &&
         header_.compressed_bytes >= kLongBytes;
}

// Reads the levels of a page only.
PageParts ColumnPages::ReadInFile() {
  const int64_t begin = page_offset_ + header_.header_bytes;
  const int64_t level_bytes = LevelBytes(chunk_, header_, begin, &read_ahead_);
  // Not in use: it is for compressed pages.
  uint8_t* levels = buffers_->page.Reserve(static_cast<size_t>(level_bytes));
  if (level_bytes > 0) read_ahead_.Copy({begin, level_bytes}, levels);
  PageParts parts = PartsOf(chunk_, header_, {levels, static_cast<size_t>(level_bytes)},
                            &buffers_->levels);
  parts.values = ValueBytes(
      &read_ahead_, {begin + level_bytes, header_.compressed_bytes - level_bytes});
  return parts;
}

PageParts ColumnPages::ReadDataPage(bool goes_on) {
  restart_bytes_ = std::max(header_.compressed_bytes, header_.uncompressed_bytes);
  if (next_page_.offset == page_offset_) {
    std::swap(buffers_->page, buffers_->next_page);
    return PartsOf(chunk_, header_, std::exchange(next_page_, {}).page,
                   &buffers_->levels);
  }
  next_page_ = {};
  if (StaysInFile()) {
    restart_bytes_ = 0;
    return ReadInFile();
  }
  // Both pages are viewed before this one, whose view is then a part of theirs.
  std::optional<NextPage> next;
  if (goes_on && indexed_.Wants(next_offset_)) next = ViewNextPage();
  const auto body = ReadBody();
  // A page of a column chunk that is not compressed stays where it was read.
  if (!chunk_.is_compressed) return PartsOf(chunk_, header_, body, &buffers_->levels);
  CheckUncompressedBytes(header_);
  const CompressedPage page = LayOut(chunk_, header_, body, &buffers_->page);
  if (!IsCompressed(chunk_, header_)) {
    std::ranges::copy(page.block.bytes, page.block.out.begin());
  } else if (next) {
    DecompressPair(page.block, *next);
  } else {
    Decompress(page.block);
  }
  return PartsOf(chunk_, header_, page, &buffers_->levels);
}

// Returns the page after the present one if it can be decompressed together with it.
// Returns nothing if that page is damaged, too large for the memory, or cannot be read:
// reading it alone will tell.
std::optional<ColumnPages::NextPage> ColumnPages::ViewNextPage() {
  // Longer pages would not stay in a core's cache until their values are read.
  constexpr int64_t kMaxBytes = int64_t{2} << 20;
  constexpr int64_t kMaxHeaderBytes = 1024;
  const int64_t begin = page_offset_ + header_.header_bytes;
  const int64_t header_end =
      std::min(next_offset_ + kMaxHeaderBytes,
               indexed_.LatestEnd(next_offset_, chunk_.range.end()));
  const auto gains = [&](const PageHeader& header) {
    return IsCompressed(chunk_, header) && header.uncompressed_bytes <= kMaxBytes &&
           PageCodec::GainsByPair(chunk_.codec, header.compressed_bytes,
                                  header.uncompressed_bytes);
  };
  if (next_offset_ >= chunk_.pages_end || !gains(header_)) return {};
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
                    .page = LayOut(chunk_, *header, bytes, &buffers_->next_page)};
  } catch (const Error&) {
    return {};
  }
}

}  // namespace torchparquet
