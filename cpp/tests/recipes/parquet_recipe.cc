#include "recipes/parquet_recipe.h"

#include <arrow/buffer.h>
#include <arrow/io/file.h>
#include <arrow/ipc/writer.h>
#include <arrow/type.h>
#include <arrow/util/base64.h>
#include <arrow/util/key_value_metadata.h>
#include <parquet/column_writer.h>
#include <parquet/exception.h>
#include <parquet/file_writer.h>
#include <parquet/properties.h>
#include <parquet/schema.h>

#include <bit>
#include <cstring>
#include <functional>
#include <memory>

#include "split_mix.h"

namespace torchparquet::testing {
namespace {

using parquet::LogicalType;
using parquet::Repetition;
using parquet::Type;
using parquet::schema::PrimitiveNode;

// Ones in the low `num_bytes` bytes.
uint64_t LowBytes(int64_t num_bytes) { return ~uint64_t{0} >> (64 - 8 * num_bytes); }

// Any pattern but those of NaNs, whose payload a conversion may change.
uint64_t MaskOf(const std::string& kind) {
  if (kind == "bool") return 1;
  if (kind == "float16") return 0xBFFF;
  if (kind == "float32") return 0xBFFFFFFF;
  if (kind == "float64") return 0xBFFFFFFFFFFFFFFF;
  return LowBytes(ItemBytes(kind));
}

parquet::schema::NodePtr MakeNode(const StoredColumn& column) {
  const auto repetition =
      column.null_every == 0 ? Repetition::REQUIRED : Repetition::OPTIONAL;
  const auto plain = [&](Type::type type) {
    return PrimitiveNode::Make(column.name, repetition, type);
  };
  const auto annotated = [&](std::shared_ptr<const LogicalType> logical, Type::type type,
                             int length = -1) {
    return PrimitiveNode::Make(column.name, repetition, std::move(logical), type, length);
  };
  if (column.kind == "bool") return plain(Type::BOOLEAN);
  if (column.kind == "int32") return plain(Type::INT32);
  if (column.kind == "int64") return plain(Type::INT64);
  if (column.kind == "float32") return plain(Type::FLOAT);
  if (column.kind == "float64") return plain(Type::DOUBLE);
  if (column.kind == "int8") return annotated(LogicalType::Int(8, true), Type::INT32);
  if (column.kind == "uint16") return annotated(LogicalType::Int(16, false), Type::INT32);
  if (column.kind == "date") return annotated(LogicalType::Date(), Type::INT32);
  if (column.kind == "float16") {
    return annotated(LogicalType::Float16(), Type::FIXED_LEN_BYTE_ARRAY, 2);
  }
  throw parquet::ParquetException("no recipe for kind " + column.kind);
}

parquet::Encoding::type FallbackEncoding(const std::string& kind) {
  if (kind == "bool") return parquet::Encoding::RLE;
  if (kind.starts_with("float")) return parquet::Encoding::BYTE_STREAM_SPLIT;
  return parquet::Encoding::DELTA_BINARY_PACKED;
}

std::shared_ptr<parquet::WriterProperties> MakeProperties(const FileRecipe& recipe) {
  parquet::WriterProperties::Builder builder;
  builder.write_batch_size(recipe.page_rows)
      ->max_rows_per_page(recipe.page_rows)
      ->data_pagesize(1 << 20)
      ->dictionary_pagesize_limit(recipe.max_dictionary_bytes)
      ->data_page_version(recipe.second_version ? parquet::ParquetDataPageVersion::V2
                                                : parquet::ParquetDataPageVersion::V1)
      ->compression(recipe.compressed ? parquet::Compression::SNAPPY
                                      : parquet::Compression::UNCOMPRESSED);
  if (recipe.has_checksums) builder.enable_page_checksum();
  for (const StoredColumn& column : recipe.columns) {
    if (column.stored_as == StoredAs::kDictionary) {
      builder.enable_dictionary(column.name);
    } else {
      builder.disable_dictionary(column.name);
      builder.encoding(column.name, column.stored_as == StoredAs::kFallback
                                        ? FallbackEncoding(column.kind)
                                        : parquet::Encoding::PLAIN);
    }
  }
  return builder.build();
}

// Writes the values of one column chunk; `stored` turns a cell's bits into a value.
template <typename ParquetType, typename Stored>
void WriteCells(parquet::ColumnWriter* writer, const StoredColumn& column,
                int64_t first_row, int64_t num_rows, const Stored& stored) {
  std::vector<int16_t> levels;
  const auto values =
      std::make_unique<typename ParquetType::c_type[]>(static_cast<size_t>(num_rows));
  const Cells cells(column);
  size_t num_values = 0;
  for (int64_t row = first_row; row < first_row + num_rows; ++row) {
    const bool null = cells.IsNull(row);
    levels.push_back(!null);
    if (!null) values[num_values++] = stored(cells.Bits(row));
  }
  static_cast<parquet::TypedColumnWriter<ParquetType>*>(writer)->WriteBatch(
      num_rows, column.null_every == 0 ? nullptr : levels.data(), nullptr, values.get());
}

void WriteColumn(parquet::ColumnWriter* writer, const StoredColumn& column,
                 int64_t first_row, int64_t num_rows) {
  const auto write = [&]<typename ParquetType>(ParquetType, const auto& stored) {
    WriteCells<ParquetType>(writer, column, first_row, num_rows, stored);
  };
  switch (writer->type()) {
    case Type::BOOLEAN:
      return write(parquet::BooleanType(), [](uint64_t bits) { return bits != 0; });
    case Type::INT32:
      return write(parquet::Int32Type(), [&](uint64_t bits) {
        if (column.kind == "int8") return static_cast<int32_t>(static_cast<int8_t>(bits));
        return static_cast<int32_t>(bits);
      });
    case Type::INT64:
      return write(parquet::Int64Type(),
                   [](uint64_t bits) { return static_cast<int64_t>(bits); });
    case Type::FLOAT:
      return write(parquet::FloatType(), [](uint64_t bits) {
        return std::bit_cast<float>(static_cast<uint32_t>(bits));
      });
    case Type::DOUBLE:
      return write(parquet::DoubleType(),
                   [](uint64_t bits) { return std::bit_cast<double>(bits); });
    default:
      break;
  }
  // Kept until the writer is closed: a dictionary of fixed-size values holds pointers.
  std::vector<uint16_t> halves(static_cast<size_t>(num_rows));
  size_t next = 0;
  write(parquet::FLBAType(), [&](uint64_t bits) {
    halves[next] = static_cast<uint16_t>(bits);
    // Parquet's values are bytes.
    return parquet::FixedLenByteArray(reinterpret_cast<const uint8_t*>(&halves[next++]));
  });
}

// Only the names of the columns are told as they are: no list is among them.
std::shared_ptr<const arrow::KeyValueMetadata> MakeMetadata(const FileRecipe& recipe) {
  if (!recipe.has_arrow_schema) return nullptr;
  arrow::FieldVector fields;
  for (const StoredColumn& column : recipe.columns) {
    fields.push_back(arrow::field(column.name, arrow::int64()));
  }
  PARQUET_ASSIGN_OR_THROW(const auto stored,
                          arrow::ipc::SerializeSchema(*arrow::schema(fields)));
  return arrow::key_value_metadata({"ARROW:schema"},
                                   {arrow::util::base64_encode(stored->ToString())});
}

}  // namespace

int64_t ItemBytes(const std::string& kind) {
  if (kind == "bool" || kind == "int8") return 1;
  if (kind == "uint16" || kind == "float16") return 2;
  if (kind == "int32" || kind == "float32") return 4;
  return 8;
}

uint64_t LoadItem(const uint8_t* data, int64_t item_bytes) {
  uint64_t item = 0;
  std::memcpy(&item, data, static_cast<size_t>(item_bytes));
  return item;
}

Cells::Cells(const StoredColumn& column)
    : seed_(std::hash<std::string>()(column.name)),
      mask_(MaskOf(column.kind)),
      item_bytes_(ItemBytes(column.kind)),
      null_every_(column.null_every),
      are_repeated_(column.stored_as == StoredAs::kDictionary),
      are_dates_(column.kind == "date") {}

uint64_t Cells::Bits(int64_t row) const {
  // Repetition makes dictionaries worth while, and runs of both kinds.
  if (are_repeated_) row = row % 131 < 40 ? row / 131 : row % 53;
  const uint64_t bits = Mix(seed_ ^ Mix(static_cast<uint64_t>(row)));
  if (are_dates_) return static_cast<uint64_t>(int64_t{static_cast<int32_t>(bits)});
  return bits & mask_;
}

bool Cells::Equals(int64_t row, uint64_t fill_bits, const uint8_t* data) const {
  const uint64_t expected = IsNull(row) ? fill_bits : Bits(row);
  return LoadItem(data, item_bytes_) == (expected & LowBytes(item_bytes_));
}

void WriteParquet(const std::string& path, const FileRecipe& recipe, int64_t first_row) {
  parquet::schema::NodeVector nodes;
  for (const StoredColumn& column : recipe.columns) nodes.push_back(MakeNode(column));
  const auto schema = std::static_pointer_cast<parquet::schema::GroupNode>(
      parquet::schema::GroupNode::Make("schema", Repetition::REQUIRED, nodes));
  PARQUET_ASSIGN_OR_THROW(const auto sink, arrow::io::FileOutputStream::Open(path));
  const auto writer = parquet::ParquetFileWriter::Open(
      sink, schema, MakeProperties(recipe), MakeMetadata(recipe));
  for (const int64_t num_rows : recipe.row_group_rows) {
    parquet::RowGroupWriter* row_group = writer->AppendRowGroup();
    for (const StoredColumn& column : recipe.columns) {
      parquet::ColumnWriter* column_writer = row_group->NextColumn();
      WriteColumn(column_writer, column, first_row, num_rows);
      column_writer->Close();
    }
    first_row += num_rows;
  }
  writer->Close();
  PARQUET_THROW_NOT_OK(sink->Close());
}

}  // namespace torchparquet::testing
