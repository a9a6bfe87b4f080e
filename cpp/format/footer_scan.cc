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
  void Require(std::initializer_list<int> ids) const {
    for (const int id : ids) {
      if ((ids_ >> id & 1) == 0) throw NotPlain{};
    }
  }

 private:
  uint64_t ids_ = 0;
};

int64_t NotNegative(int64_t value) {
  if (value < 0) throw NotPlain{};
  return value;
}

int64_t Sum(int64_t a, int64_t b) {
  int64_t sum;
  if (__builtin_add_overflow(a, b, &sum)) throw NotPlain{};
  return sum;
}

int32_t KnownCodec(int32_t codec) {
  if (codec < Codec::kNone || codec > Codec::kLz4) throw NotPlain{};
  return codec;
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
  reader->ReadStruct(struct_type, [&](int64_t id, int type) {
    seen.Add(id);
    if (id != 1) return reader->SkipField(type);
    num_bytes = reader->ReadI64(type);
  });
  return num_bytes;
}

// PageEncodingStats: checked only.
void CheckEncodingStats(ThriftCompactReader* reader, int struct_type) {
  Seen seen;
  reader->ReadStruct(struct_type, [&](int64_t id, int type) {
    seen.Add(id);
    if (id > 3) return reader->SkipField(type);
    reader->ReadI32(type);
  });
  seen.Require({1, 2, 3});
}

// ColumnMetaData.
ChunkFacts ReadColumnMetaData(ThriftCompactReader* reader, int struct_type) {
  Seen seen;
  ChunkFacts chunk;
  reader->ReadStruct(struct_type, [&](int64_t id, int type) {
    seen.Add(id);
    switch (id) {
      case 1:  // type
        reader->ReadI32(type);
        return;
      case 2:  // encodings
        reader->ReadList(type, [&](int element) { reader->ReadI32(element); });
        return;
      case 3:  // path_in_schema
        reader->ReadList(type, [&](int element) { reader->ReadBinary(element); });
        return;
      case 4:
        chunk.codec = KnownCodec(reader->ReadI32(type));
        return;
      case 5:
        chunk.num_values = reader->ReadI64(type);
        return;
      case 6:
        chunk.uncompressed_bytes = reader->ReadI64(type);
        return;
      case 7:
        chunk.compressed_bytes = NotNegative(reader->ReadI64(type));
        return;
      case 9:
        chunk.data_page_offset = reader->ReadI64(type);
        return;
      case 11:
        chunk.dictionary_page_offset = reader->ReadI64(type);
        return;
      case 13:
        reader->ReadList(type, [&](int element) { CheckEncodingStats(reader, element); });
        return;
      case 16:
        chunk.string_bytes = ReadStringBytes(reader, type);
        return;
      default:
        reader->SkipField(type);
    }
  });
  seen.Require({1, 2, 3, 4, 5, 6, 7, 9});
  return chunk;
}

// ColumnChunk, in the format's sense.
ChunkFacts ReadColumnChunk(ThriftCompactReader* reader, int struct_type) {
  Seen seen;
  ChunkFacts chunk;
  int64_t index_offset = 0;
  int32_t index_bytes = 0;
  reader->ReadStruct(struct_type, [&](int64_t id, int type) {
    seen.Add(id);
    switch (id) {
      case 1:  // file_path
        if (!reader->ReadBinary(type).empty()) throw NotPlain{};
        return;
      case 2:  // file_offset
        reader->ReadI64(type);
        return;
      case 3:
        chunk = ReadColumnMetaData(reader, type);
        return;
      case 4:
        index_offset = reader->ReadI64(type);
        return;
      case 5:
        index_bytes = reader->ReadI32(type);
        return;
      case 8:  // crypto_metadata
      case 9:  // encrypted_column_metadata
        throw NotPlain{};
      default:
        reader->SkipField(type);
    }
  });
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
  reader->ReadStruct(struct_type, [&](int64_t id, int type) {
    seen.Add(id);
    switch (id) {
      case 1:
        reader->ReadList(type, [&](int element) {
          const ChunkFacts chunk = ReadColumnChunk(reader, element);
          const size_t column = num_values.size();
          if (is_first) scan->column_bytes.push_back(0);
          if (column >= scan->column_bytes.size()) throw NotPlain{};
          scan->column_bytes[column] += static_cast<double>(chunk.value_bytes());
          num_bytes = Sum(num_bytes, chunk.compressed_bytes);
          scan->chunks.push_back(chunk);
          num_values.push_back(chunk.num_values);
        });
        return;
      case 2:  // total_byte_size
        reader->ReadI64(type);
        return;
      case 3:
        num_rows = NotNegative(reader->ReadI64(type));
        return;
      default:
        reader->SkipField(type);
    }
  });
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
  reader->ReadStruct(struct_type, [&](int64_t id, int type) {
    seen.Add(id);
    switch (id) {
      case 1:
        key = reader->ReadBinary(type);
        return;
      case 2:
        value = reader->ReadBinary(type);
        return;
      default:
        reader->SkipField(type);
    }
  });
  seen.Require({1});
  if (key != "ARROW:schema" || *has_arrow_schema) return;
  *has_arrow_schema = true;
  scan->arrow_schema = value;
}

// FileMetaData.
void ReadFooter(ThriftCompactReader* reader, FooterScan* scan) {
  Seen seen;
  bool has_arrow_schema = false;
  reader->ReadStruct([&](int64_t id, int type) {
    seen.Add(id);
    switch (id) {
      case 1:  // version
        reader->ReadI32(type);
        return;
      case 2:
        scan->schema = reader->SkipList(type);
        return;
      case 3:
        scan->num_rows = reader->ReadI64(type);
        return;
      case 4:
        reader->ReadList(type, [&](int element) { ReadRowGroup(reader, element, scan); });
        return;
      case 5:
        reader->ReadList(type, [&](int element) {
          ReadKeyValue(reader, element, &has_arrow_schema, scan);
        });
        return;
      case 6:
        scan->may_have_old_writer = MayBeOldWriter(reader->ReadBinary(type));
        return;
      case 7:
        scan->num_column_orders = 0;
        reader->ReadList(type, [&](int element) {
          reader->SkipElement(element);
          ++*scan->num_column_orders;
        });
        return;
      case 8:  // encryption_algorithm
        throw NotPlain{};
      default:
        reader->SkipField(type);
    }
  });
  seen.Require({1, 2, 3, 4});
}

}  // namespace

std::optional<FooterScan> ScanFooter(std::span<const uint8_t> footer) {
  ThriftCompactReader reader(footer);
  FooterScan scan;
  try {
    ReadFooter(&reader, &scan);
    int64_t num_rows = 0;
    for (const int64_t rows : scan.row_group_num_rows) num_rows = Sum(num_rows, rows);
    if (num_rows != scan.num_rows || reader.rest_bytes() != 0) return std::nullopt;
  } catch (const ThriftCompactReader::Failure&) {
    return std::nullopt;
  }
  return scan;
}

}  // namespace torchparquet
