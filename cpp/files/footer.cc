#include "files/footer.h"

#include <algorithm>
#include <iterator>
#include <memory>
#include <span>
#include <string>
#include <utility>

#include "files/footer_scan.h"
#include "kernels/xxhash64.h"

namespace torchparquet {
namespace {

// The bytes of a column chunk's values, with dictionaries resolved if the writer gives
// the size.
double ValueBytes(const ChunkFacts& chunk) {
  const int64_t num_bytes = chunk.string_bytes.value_or(chunk.uncompressed_bytes);
  return static_cast<double>(std::max<int64_t>(num_bytes, 0));
}

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
    footer->leaf_bytes[static_cast<size_t>(i)] += ValueBytes(*chunk);
  }
  footer->row_group_num_rows.push_back(group.num_rows);
  footer->row_group_num_bytes.push_back(total);
}

// The footer's bytes.
class FooterBytes {
 public:
  // Reads the end of the file, which usually includes the whole footer, by one call.
  explicit FooterBytes(const Source& file) {
    const int64_t most = file.num_bytes();
    Read(file, std::min(most, kUsualBytes));
    if (most < FooterEnd::kNumBytes) return;
    const std::span<const uint8_t> bytes(bytes_);
    end_ = FooterEnd::Read(bytes.last<FooterEnd::kNumBytes>(), most);
    const int64_t wanted = end_.num_bytes + FooterEnd::kNumBytes;
    if (wanted > std::ssize(bytes_)) Read(file, wanted);
  }

  std::span<const uint8_t> bytes() const {
    const auto size = static_cast<size_t>(end_.num_bytes);
    const size_t trailer = std::min(bytes_.size(), size_t{FooterEnd::kNumBytes});
    return std::span(bytes_).first(bytes_.size() - trailer).last(size);
  }
  // The footer and all that follows it.
  std::vector<uint8_t> Content() const {
    return {bytes_.end() - end_.num_bytes - FooterEnd::kNumBytes, bytes_.end()};
  }
  // Nothing where it takes a real parser to tell what the footer says.
  std::optional<FooterScan> Scan() const {
    return end_.is_plain ? ScanFooter(bytes()) : std::nullopt;
  }
  // Sizes, places and statistics of all column chunks are in there, so that other values
  // hardly ever have the same.
  int64_t Digest() const { return static_cast<int64_t>(kernels::XxHash64(bytes())); }

 private:
  static constexpr int64_t kUsualBytes = int64_t{16} << 10;

  void Read(const Source& file, int64_t num_bytes) {
    bytes_.resize(static_cast<size_t>(num_bytes));
    file.ReadAt(file.num_bytes() - num_bytes, num_bytes, bytes_.data());
  }

  std::vector<uint8_t> bytes_;
  FooterEnd end_;
};

// True if the row groups belong to a file with that schema.
bool Fits(const FooterScan& scan, const std::vector<LeafColumn>& leaves) {
  if (scan.num_column_orders.value_or(leaves.size()) != leaves.size()) return false;
  if (scan.row_group_num_rows.empty()) return true;
  if (scan.has_value_per_row.size() != leaves.size()) return false;
  for (size_t i = 0; i < leaves.size(); ++i) {
    const bool is_flat = leaves[i].element_levels.empty();
    if (is_flat && !scan.has_value_per_row[i]) return false;
  }
  return true;
}

void ParseFooter(std::unique_ptr<const Source> source, const PlannedFile& planned,
                 Footer* footer) {
  const ParquetFile file(std::move(source), planned);
  footer->schema = std::make_shared<const std::vector<LeafColumn>>(file.leaves());
  const int num_row_groups = static_cast<int>(file.row_groups().size());
  for (int i = 0; i < num_row_groups; ++i) AddRowGroup(file, i, footer);
}

}  // namespace

Footer ReadFooter(const PlannedFile& planned, FooterParts parts, KnownSchemas* known) {
  Footer footer;
  try {
    auto source = OpenSource(planned);
    const FooterBytes bytes(*source);
    footer.identity = source->identity();
    footer.digest = bytes.Digest();
    std::optional<FooterScan> scan;
    if (planned.decryption == nullptr) scan = bytes.Scan();
    footer.schema = scan ? known->Find(*scan) : nullptr;
    if (footer.schema == nullptr || !Fits(*scan, *footer.schema)) {
      ParseFooter(std::move(source), planned, &footer);
      if (scan) known->Add(*scan, footer.schema);
    } else {
      footer.row_group_num_rows = std::move(scan->row_group_num_rows);
      footer.row_group_num_bytes = std::move(scan->row_group_num_bytes);
      footer.leaf_bytes = std::move(scan->column_bytes);
      footer.chunk_num_bytes = std::move(scan->chunk_num_bytes);
    }
    if (!parts.chunk_num_bytes) footer.chunk_num_bytes = {};
    if (parts.content) footer.content = bytes.Content();
  } catch (...) {
    footer.error = CurrentErrorAt({.path = planned.path});
  }
  return footer;
}

}  // namespace torchparquet
