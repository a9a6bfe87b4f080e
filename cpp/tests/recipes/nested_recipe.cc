#include "recipes/nested_recipe.h"

#include <arrow/io/file.h>
#include <parquet/column_writer.h>
#include <parquet/exception.h>
#include <parquet/file_writer.h>
#include <parquet/properties.h>
#include <parquet/schema.h>

#include <cstdlib>
#include <cstring>
#include <memory>
#include <numeric>
#include <stdexcept>
#include <utility>

#include "recipes/nested_pages.h"

namespace torchparquet::testing {
namespace {

using parquet::LogicalType;
using parquet::Repetition;
using parquet::Type;
using parquet::schema::GroupNode;
using parquet::schema::NodePtr;
using parquet::schema::PrimitiveNode;

constexpr int kFixedBytes = 3;

NodePtr ValueNode(const NestedColumn& column, const std::string& name,
                  Repetition::type repetition) {
  switch (column.kind) {
    case ValueKind::kInt32:
      return PrimitiveNode::Make(name, repetition, Type::INT32);
    case ValueKind::kInt64:
      return PrimitiveNode::Make(name, repetition, Type::INT64);
    case ValueKind::kBool:
      return PrimitiveNode::Make(name, repetition, Type::BOOLEAN);
    case ValueKind::kFixed:
      return PrimitiveNode::Make(name, repetition, Type::FIXED_LEN_BYTE_ARRAY,
                                 parquet::ConvertedType::NONE, kFixedBytes);
    default:
      return PrimitiveNode::Make(name, repetition, LogicalType::String(),
                                 Type::BYTE_ARRAY);
  }
}

NodePtr MakeNode(const NestedColumn& column, const std::string& name, int depth) {
  const auto repetition =
      column.IsOptional(depth) ? Repetition::OPTIONAL : Repetition::REQUIRED;
  if (depth == column.num_lists) return ValueNode(column, name, repetition);
  if (column.form == ListForm::kBare) {
    return ValueNode(column, name, Repetition::REPEATED);
  }
  const bool is_innermost = depth + 1 == column.num_lists;
  const NodePtr repeated =
      column.form == ListForm::kTwoLevel && is_innermost
          ? ValueNode(column, "array", Repetition::REPEATED)
          : GroupNode::Make("list", Repetition::REPEATED,
                            {MakeNode(column, "element", depth + 1)});
  return GroupNode::Make(name, repetition, {repeated}, LogicalType::List());
}

std::shared_ptr<parquet::WriterProperties> MakeProperties(const NestedRecipe& recipe) {
  parquet::WriterProperties::Builder builder;
  builder.write_batch_size(recipe.page_entries)
      ->data_pagesize(1)
      ->dictionary_pagesize_limit(recipe.max_dictionary_bytes)
      ->data_page_version(recipe.second_version ? parquet::ParquetDataPageVersion::V2
                                                : parquet::ParquetDataPageVersion::V1)
      ->compression(recipe.compressed ? parquet::Compression::ZSTD
                                      : parquet::Compression::UNCOMPRESSED);
  if (recipe.has_checksums) builder.enable_page_checksum();
  if (!recipe.has_offset_index) builder.disable_write_page_index();
  builder.disable_dictionary()->encoding(parquet::Encoding::PLAIN);
  return builder.build();
}

// By path, which is known once there is a schema.
std::shared_ptr<parquet::WriterProperties> WithEncodings(
    const NestedRecipe& recipe, const parquet::WriterProperties& properties,
    const parquet::SchemaDescriptor& schema) {
  parquet::WriterProperties::Builder builder(properties);
  for (size_t i = 0; i < recipe.columns.size(); ++i) {
    const NestedColumn& column = recipe.columns[i];
    const auto path = schema.Column(static_cast<int>(i))->path();
    if (column.stored_as == StoredAs::kDictionary) {
      builder.enable_dictionary(path);
    } else if (column.stored_as == StoredAs::kFallback) {
      builder.encoding(path, column.is_string() ? parquet::Encoding::DELTA_BYTE_ARRAY
                             : column.kind == ValueKind::kBool ? parquet::Encoding::RLE
                             : column.kind == ValueKind::kFixed
                                 ? parquet::Encoding::BYTE_STREAM_SPLIT
                                 : parquet::Encoding::DELTA_BINARY_PACKED);
    }
  }
  return builder.build();
}

// Source: Melnik et al., "Dremel", on how records are taken apart.
void Shred(const NestedColumn& column, const Nested& row, int depth, int repeated,
           int defined, Shredded* out) {
  const auto end_here = [&] {
    out->definition.push_back(static_cast<int16_t>(defined));
    out->repetition.push_back(static_cast<int16_t>(repeated));
  };
  if (row.is_null) return end_here();
  defined += column.IsOptional(depth);
  if (depth == column.num_lists) {
    out->values.push_back(&row.bytes);
    return end_here();
  }
  if (row.items.empty()) return end_here();
  for (const Nested& item : row.items) {
    Shred(column, item, depth + 1, repeated, defined + 1, out);
    repeated = depth + 1;
  }
}

template <typename ParquetType, typename ToValue>
void WriteValues(parquet::ColumnWriter* writer, const Shredded& shredded,
                 const ToValue& to_value) {
  const auto values = std::make_unique<typename ParquetType::c_type[]>(
      std::max<size_t>(1, shredded.values.size()));
  for (size_t i = 0; i < shredded.values.size(); ++i) {
    values[i] = to_value(*shredded.values[i]);
  }
  static_cast<parquet::TypedColumnWriter<ParquetType>*>(writer)->WriteBatch(
      std::ssize(shredded.definition), shredded.definition.data(),
      shredded.repetition.data(), values.get());
}

template <typename Value>
Value Load(const std::string& bytes) {
  Value value;
  std::memcpy(&value, bytes.data(), sizeof(value));
  return value;
}

const uint8_t* Data(const std::string& bytes) {
  return reinterpret_cast<const uint8_t*>(bytes.data());  // characters are bytes
}

void WriteColumn(parquet::ColumnWriter* writer, const Shredded& shredded) {
  switch (writer->type()) {
    case Type::BOOLEAN:
      return WriteValues<parquet::BooleanType>(writer, shredded, Load<bool>);
    case Type::INT32:
      return WriteValues<parquet::Int32Type>(writer, shredded, Load<int32_t>);
    case Type::INT64:
      return WriteValues<parquet::Int64Type>(writer, shredded, Load<int64_t>);
    case Type::BYTE_ARRAY:
      return WriteValues<parquet::ByteArrayType>(
          writer, shredded, [](const std::string& bytes) {
            return parquet::ByteArray(static_cast<uint32_t>(bytes.size()), Data(bytes));
          });
    default:
      return WriteValues<parquet::FLBAType>(
          writer, shredded, [](const std::string& bytes) {
            return parquet::FixedLenByteArray(Data(bytes));
          });
  }
}

void WriteWholeRows(const std::string& path, const std::shared_ptr<GroupNode>& schema,
                    const std::shared_ptr<parquet::WriterProperties>& properties,
                    const ShreddedFile& row_groups) {
  PARQUET_ASSIGN_OR_THROW(const auto sink, arrow::io::FileOutputStream::Open(path));
  const auto writer = parquet::ParquetFileWriter::Open(sink, schema, properties);
  for (const std::vector<Shredded>& columns : row_groups) {
    parquet::RowGroupWriter* row_group = writer->AppendRowGroup();
    for (const Shredded& shredded : columns) {
      parquet::ColumnWriter* column_writer = row_group->NextColumn();
      WriteColumn(column_writer, shredded);
      column_writer->Close();
    }
  }
  writer->Close();
  PARQUET_THROW_NOT_OK(sink->Close());
}

std::string RandomValue(Draws& draws, const NestedColumn& column) {
  // Repetition makes dictionaries worth while.
  Draws few(static_cast<uint64_t>(draws.Below(40)));
  Draws& used = column.stored_as == StoredAs::kDictionary ? few : draws;
  if (column.kind == ValueKind::kBool) return {static_cast<char>(used.Below(2))};
  int64_t size = column.item_bytes() * column.cell_items();
  if (column.is_string()) size = used.OneIn(10) ? used.Below(300) : used.Below(12);
  const auto bytes = RandomBytes(used, size);
  return {bytes.begin(), bytes.end()};
}

}  // namespace

int64_t NestedColumn::item_bytes() const {
  return kind == ValueKind::kInt32 ? 4 : kind == ValueKind::kInt64 ? 8 : 1;
}

int64_t NestedColumn::cell_items() const {
  return kind == ValueKind::kFixed ? kFixedBytes : 1;
}

bool NestedColumn::IsOptional(int depth) const {
  if (!optional || (form == ListForm::kBare && num_lists > 0)) return false;
  return !(form == ListForm::kTwoLevel && depth == num_lists);
}

ColumnRequest NestedColumn::Request() const {
  std::string leaf_kind = "string";
  kernels::Dtype dtype = kernels::Dtype::kUInt8;
  if (kind == ValueKind::kInt32) {
    leaf_kind = "int32";
    dtype = kernels::Dtype::kInt32;
  } else if (kind == ValueKind::kInt64) {
    leaf_kind = "int64";
    dtype = kernels::Dtype::kInt64;
  } else if (kind == ValueKind::kBool) {
    leaf_kind = "bool";
    dtype = kernels::Dtype::kBool;
  } else if (kind == ValueKind::kFixed) {
    leaf_kind = "fixed_size_binary(3)";
  }
  for (int i = 0; i < num_lists; ++i) leaf_kind = "list<" + leaf_kind + ">";
  return {.path = name,
          .kinds = {leaf_kind},
          .dtype = dtype,
          .cell_items = cell_items(),
          .num_offsets = num_lists + is_string()};
}

Nested RandomRow(Draws& draws, const NestedColumn& column, int depth) {
  const bool may_be_null = column.IsOptional(depth) && column.null_one_in > 0;
  if (may_be_null && draws.OneIn(column.null_one_in)) return {.is_null = true};
  if (depth == column.num_lists) return {.bytes = RandomValue(draws, column)};
  Nested row;
  int64_t length = column.list_length;
  if (length < 0) {
    length = draws.OneIn(4) ? 0 : draws.OneIn(12) ? draws.Below(60) : draws.Below(5);
    // So long, now and then, that a row has pages of its own.
    if (depth == 0 && draws.OneIn(150)) length = 400;
  }
  for (; length > 0; --length) row.items.push_back(RandomRow(draws, column, depth + 1));
  return row;
}

std::vector<std::vector<Nested>> RandomRows(Draws& draws, const NestedRecipe& recipe) {
  const int64_t num_rows = std::accumulate(recipe.row_group_rows.begin(),
                                           recipe.row_group_rows.end(), int64_t{0});
  std::vector<std::vector<Nested>> rows;
  for (const NestedColumn& column : recipe.columns) {
    std::vector<Nested>& of_column = rows.emplace_back();
    while (std::ssize(of_column) < num_rows) {
      of_column.push_back(RandomRow(draws, column));
    }
  }
  return rows;
}

NestedFile::NestedFile(NestedRecipe recipe, std::vector<std::vector<Nested>> rows)
    : recipe_(std::move(recipe)), rows_(std::move(rows)) {
  std::string name =
      (std::filesystem::temp_directory_path() / "torchparquet-XXXXXX").string();
  if (mkdtemp(name.data()) == nullptr) throw std::runtime_error("no temporary directory");
  directory_ = name;
  path_ = (directory_ / "nested.parquet").string();
  parquet::schema::NodeVector nodes;
  for (const NestedColumn& column : recipe_.columns) {
    nodes.push_back(MakeNode(column, column.name, 0));
  }
  const auto schema = std::static_pointer_cast<GroupNode>(
      GroupNode::Make("schema", Repetition::REQUIRED, nodes));
  parquet::SchemaDescriptor descriptor;
  descriptor.Init(schema);
  const auto properties = WithEncodings(recipe_, *MakeProperties(recipe_), descriptor);
  ShreddedFile row_groups;
  auto first_row = int64_t{0};
  for (const int64_t num_rows : recipe_.row_group_rows) {
    auto& shredded = row_groups.emplace_back(recipe_.columns.size());
    for (size_t i = 0; i < recipe_.columns.size(); ++i) {
      for (int64_t row = first_row; row < first_row + num_rows; ++row) {
        Shred(recipe_.columns[i], rows_[i][static_cast<size_t>(row)], 0, 0, 0,
              &shredded[i]);
      }
    }
    first_row += num_rows;
  }
  if (recipe_.splits_rows) {
    WriteSplitPages(path_, recipe_, descriptor, properties, row_groups);
  } else {
    WriteWholeRows(path_, schema, properties, row_groups);
  }
}

NestedFile::~NestedFile() { std::filesystem::remove_all(directory_); }

int64_t NestedFile::FirstRow(int64_t row_group) const {
  return std::accumulate(recipe_.row_group_rows.begin(),
                         recipe_.row_group_rows.begin() + row_group, int64_t{0});
}

Flat Flatten(const NestedColumn& column, std::span<const Nested> rows,
             uint64_t fill_bits) {
  std::vector<const Nested*> pointers;
  for (const Nested& row : rows) pointers.push_back(&row);
  return Flatten(column, std::move(pointers), fill_bits);
}

Flat Flatten(const NestedColumn& column, std::vector<const Nested*> rows,
             uint64_t fill_bits) {
  Flat flat;
  for (const Nested* row : rows) flat.row_valid.push_back(!row->is_null);
  std::vector<const Nested*> items = std::move(rows);
  for (int depth = 0; depth < column.num_lists; ++depth) {
    std::vector<const Nested*> next;
    std::vector<int64_t>& offsets = flat.offsets.emplace_back(1, 0);
    for (const Nested* list : items) {
      for (const Nested& item : list->items) next.push_back(&item);
      offsets.push_back(std::ssize(next));
    }
    items = std::move(next);
  }
  if (column.is_string()) flat.offsets.emplace_back(1, 0);
  for (const Nested* value : items) {
    flat.item_valid.push_back(!value->is_null);
    flat.values.insert(flat.values.end(), value->bytes.begin(), value->bytes.end());
    if (column.is_string()) {
      flat.offsets.back().push_back(std::ssize(flat.values));
    } else if (value->is_null) {
      for (int64_t i = 0; i < column.cell_items() * column.item_bytes(); ++i) {
        flat.values.push_back(
            static_cast<uint8_t>(fill_bits >> (8 * (i % column.item_bytes()))));
      }
    }
  }
  return flat;
}

}  // namespace torchparquet::testing
