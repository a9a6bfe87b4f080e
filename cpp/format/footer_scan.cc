#include "format/footer_scan.h"

#include <algorithm>
#include <cctype>
#include <cstddef>
#include <initializer_list>
#include <string>

#include "bridge/format.h"
#include "format/thrift_compact.h"

namespace torchparquet {
namespace {

// Thrown if only a real parser can go on.
class NotPlain : public ThriftCompactReader::Failure {};

// The fields of a struct seen so far.
class Seen {
 public:
  void Add(int64_t id) {
    if (id >= 64) return;  // no field that is read
    const uint64_t bit = uint64_t{1} << id;
    if ((ids_ & bit) != 0) throw NotPlain{};
    ids_ |= bit;
  }
  // Reads these fields of a struct.
  template <typename... Fields>
  void Read(ThriftCompactReader* reader, int struct_type, const Fields&... fields) {
    reader->ReadStruct(struct_type, [&](int64_t id, int type) {
      Add(id);
      reader->ReadField(id, type, fields...);
    });
  }
  void Require(std::initializer_list<int> ids) const {
    for (const int id : ids) {
      if ((ids_ >> id & 1) == 0) throw NotPlain{};
    }
  }

 private:
  uint64_t ids_ = 0;
};

void CheckNotNegative(int64_t value) {
  if (value < 0) throw NotPlain{};
}

int64_t Sum(int64_t a, int64_t b) {
  int64_t sum;
  if (__builtin_add_overflow(a, b, &sum)) throw NotPlain{};
  return sum;
}

void CheckCodec(int32_t codec) {
  if (codec < Codec::kNone || codec > Codec::kLz4) throw NotPlain{};
}

// Files of parquet-mr before 1.2.9 and of parquet-cpp before 2 are read in a way of their
// own. True for every name like these, unless it plainly tells a later release.
bool MayBeOldWriter(std::string_view created_by) {
  std::string name(created_by);
  std::ranges::transform(name, name.begin(), [](unsigned char letter) {
    return static_cast<char>(std::tolower(letter));
  });
  constexpr std::string_view kLaterJava = "parquet-mr version 1.1";  // of 1.10 to 1.19
  if (name.starts_with(kLaterJava) && name.size() > kLaterJava.size()) {
    const auto next = static_cast<unsigned char>(name[kLaterJava.size()]);
    if (std::isdigit(next) != 0) return false;
  }
  if (name.starts_with("parquet-cpp-arrow version ")) return false;
  return name.find("parquet-mr") != std::string::npos ||
         name.find("parquet-cpp") != std::string::npos;
}

// SizeStatistics: the bytes of strings, without their lengths.
std::optional<int64_t> ReadStringBytes(ThriftCompactReader* reader, int struct_type) {
  Seen seen;
  std::optional<int64_t> num_bytes;
  seen.Read(reader, struct_type, reader->I64(1, &num_bytes));
  return num_bytes;
}

// PageEncodingStats: checked only.
void CheckEncodingStats(ThriftCompactReader* reader, int struct_type) {
  Seen seen;
  int32_t ignored = 0;
  seen.Read(reader, struct_type, reader->I32(1, &ignored), reader->I32(2, &ignored),
            reader->I32(3, &ignored));
  seen.Require({1, 2, 3});
}

// ColumnMetaData.
ChunkFacts ReadColumnMetaData(ThriftCompactReader* reader, int struct_type) {
  Seen seen;
  ChunkFacts chunk;
  int32_t type_number = 0;
  const auto encodings =
      reader->List(2, [reader](int element) { reader->ReadI32(element); });
  const auto path =
      reader->List(3, [reader](int element) { reader->ReadBinary(element); });
  const auto encoding_stats =
      reader->List(13, [reader](int element) { CheckEncodingStats(reader, element); });
  const auto size_statistics = reader->At(
      16, [&](int type) { chunk.string_bytes = ReadStringBytes(reader, type); });
  seen.Read(
      reader, struct_type, reader->I32(1, &type_number), encodings, path,
      reader->I32(4, &chunk.codec), reader->I64(5, &chunk.num_values),
      reader->I64(6, &chunk.uncompressed_bytes), reader->I64(7, &chunk.compressed_bytes),
      reader->I64(9, &chunk.data_page_offset),
      reader->I64(11, &chunk.dictionary_page_offset), encoding_stats, size_statistics);
  CheckCodec(chunk.codec);
  CheckNotNegative(chunk.compressed_bytes);
  seen.Require({1, 2, 3, 4, 5, 6, 7, 9});
  return chunk;
}

// ColumnChunk, in the format's sense.
ChunkFacts ReadColumnChunk(ThriftCompactReader* reader, int struct_type) {
  Seen seen;
  ChunkFacts chunk;
  int64_t index_offset = 0;
  int32_t index_bytes = 0;
  int64_t file_offset = 0;
  const auto file_path = reader->At(1, [&](int type) {
    if (!reader->ReadBinary(type).empty()) throw NotPlain{};
  });
  const auto encrypted = [](int) { throw NotPlain{}; };
  seen.Read(reader, struct_type, file_path, reader->I64(2, &file_offset),
            reader->At(3, [&](int type) { chunk = ReadColumnMetaData(reader, type); }),
            reader->I64(4, &index_offset), reader->I32(5, &index_bytes),
            reader->At(8, encrypted),   // crypto_metadata
            reader->At(9, encrypted));  // encrypted_column_metadata
  seen.Require({2, 3});
  if (index_offset > 0 && index_bytes > 0) {
    chunk.offset_index_offset = index_offset;
    chunk.offset_index_bytes = index_bytes;
  }
  return chunk;
}

// RowGroup. Its number of rows may come after its columns.
void ReadRowGroup(ThriftCompactReader* reader, int struct_type, FooterScan* scan) {
  Seen seen;
  int64_t num_rows = 0;
  int64_t num_bytes = 0;
  std::vector<int64_t> num_values;
  num_values.reserve(scan->column_bytes.size());
  const bool is_first = scan->row_group_num_rows.empty();
  const auto read_chunk = [&](int element) {
    const ChunkFacts chunk = ReadColumnChunk(reader, element);
    const size_t column = num_values.size();
    if (is_first) scan->column_bytes.push_back(0);
    if (column >= scan->column_bytes.size()) throw NotPlain{};
    scan->column_bytes[column] += static_cast<double>(chunk.value_bytes());
    num_bytes = Sum(num_bytes, chunk.compressed_bytes);
    scan->chunks.push_back(chunk);
    num_values.push_back(chunk.num_values);
  };
  int64_t total_bytes = 0;
  seen.Read(reader, struct_type, reader->List(1, read_chunk),
            reader->I64(2, &total_bytes), reader->I64(3, &num_rows));
  CheckNotNegative(num_rows);
  seen.Require({1, 2, 3});
  if (num_values.size() != scan->column_bytes.size()) throw NotPlain{};
  scan->has_value_per_row.resize(num_values.size(), true);
  for (size_t i = 0; i < num_values.size(); ++i) {
    if (num_values[i] != num_rows) scan->has_value_per_row[i] = false;
  }
  scan->row_group_num_rows.push_back(num_rows);
  scan->row_group_num_bytes.push_back(num_bytes);
}

// The first value with that key, as Arrow reads it.
void ReadKeyValue(ThriftCompactReader* reader, int struct_type, bool* has_arrow_schema,
                  FooterScan* scan) {
  Seen seen;
  std::string_view key;
  std::string_view value;
  seen.Read(reader, struct_type, reader->Binary(1, &key), reader->Binary(2, &value));
  seen.Require({1});
  if (key != "ARROW:schema" || *has_arrow_schema) return;
  *has_arrow_schema = true;
  scan->arrow_schema = value;
}

// FileMetaData.
void ReadFooter(ThriftCompactReader* reader, FooterScan* scan) {
  Seen seen;
  bool has_arrow_schema = false;
  int32_t version = 0;
  const auto row_groups =
      reader->List(4, [&](int element) { ReadRowGroup(reader, element, scan); });
  const auto key_values = reader->List(
      5, [&](int element) { ReadKeyValue(reader, element, &has_arrow_schema, scan); });
  const auto created_by = reader->At(6, [&](int type) {
    scan->may_have_old_writer = MayBeOldWriter(reader->ReadBinary(type));
  });
  const auto column_orders = reader->At(7, [&](int type) {
    scan->num_column_orders = 0;
    reader->ReadList(type, [&](int element) {
      reader->SkipElement(element);
      ++*scan->num_column_orders;
    });
  });
  const auto encryption_algorithm = reader->At(8, [](int) { throw NotPlain{}; });
  reader->ReadStruct([&](int64_t id, int type) {
    seen.Add(id);
    reader->ReadField(
        id, type, reader->I32(1, &version),
        reader->At(2, [&](int list) { scan->schema = reader->SkipList(list); }),
        reader->I64(3, &scan->num_rows), row_groups, key_values, created_by,
        column_orders, encryption_algorithm);
  });
  seen.Require({1, 2, 3, 4});
}

}  // namespace

std::optional<FooterScan> ScanFooter(std::span<const uint8_t> footer) {
  ThriftCompactReader reader(footer);
  FooterScan scan;
  int64_t num_rows = 0;
  const bool is_sound = ThriftCompactReader::IsSound([&] {
    ReadFooter(&reader, &scan);
    for (const int64_t rows : scan.row_group_num_rows) num_rows = Sum(num_rows, rows);
  });
  if (!is_sound || num_rows != scan.num_rows || reader.rest_bytes() != 0) return {};
  return scan;
}

}  // namespace torchparquet
