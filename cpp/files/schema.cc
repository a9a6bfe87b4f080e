#include "files/schema.h"

#include <parquet/schema.h>
#include <parquet/types.h>

#include <algorithm>
#include <map>
#include <utility>

#include "errors.h"

namespace torchparquet {
namespace {

using kernels::Stored;
using kernels::StoredType;
using parquet::LogicalType;
using parquet::Type;

// The type of a leaf, before nullability and lists.
struct ValueType {
  std::string kind;
  std::string dtype;
  StoredType stored;
};

// The digits of a decimal in 16 bytes.
constexpr int32_t kMaxDecimalDigits = 38;

ValueType NotCovered(std::string kind) { return {std::move(kind), "", {}}; }

ValueType Bytes(std::string kind) {
  return {std::move(kind), "uint8", {Stored::kBytes, 0}};
}

const char* UnitName(LogicalType::TimeUnit::unit unit) {
  switch (unit) {
    case LogicalType::TimeUnit::MILLIS:
      return "ms";
    case LogicalType::TimeUnit::MICROS:
      return "us";
    case LogicalType::TimeUnit::NANOS:
      return "ns";
    default:
      return "unknown unit";
  }
}

ValueType DescribeInteger(const parquet::IntLogicalType& type, Type::type physical) {
  const std::string name =
      (type.is_signed() ? "int" : "uint") + std::to_string(type.bit_width());
  const bool is_signed = type.is_signed();
  if (physical == Type::INT64 && type.bit_width() == 64)
    return {name, name, {is_signed ? Stored::kInt64 : Stored::kUInt64, 8}};
  if (physical != Type::INT32) return NotCovered(name);
  switch (type.bit_width()) {
    case 8:
      return {name, name, {is_signed ? Stored::kInt8 : Stored::kUInt8, 4}};
    case 16:
      return {name, name, {is_signed ? Stored::kInt16 : Stored::kUInt16, 4}};
    case 32:
      return {name, name, {is_signed ? Stored::kInt32 : Stored::kUInt32, 4}};
    default:
      return NotCovered(name);
  }
}

ValueType DescribeTime(const parquet::TimeLogicalType& type, Type::type physical) {
  const std::string kind = std::string("time[") + UnitName(type.time_unit()) + "]";
  if (physical == Type::INT32) return {kind, "int64", {Stored::kInt32, 4}};
  return {kind, "int64", {Stored::kInt64, 8}};
}

ValueType DescribeTimestamp(const parquet::TimestampLogicalType& type) {
  const std::string kind = std::string("timestamp[") + UnitName(type.time_unit()) +
                           (type.is_adjusted_to_utc() ? ", UTC]" : "]");
  return {kind, "int64", {Stored::kInt64, 8}};
}

ValueType DescribeDecimal(const parquet::DecimalLogicalType& type,
                          const parquet::ColumnDescriptor& descriptor) {
  std::string kind = "decimal(" + std::to_string(type.precision()) + ", " +
                     std::to_string(type.scale()) + ")";
  const int32_t scale = type.scale();
  switch (descriptor.physical_type()) {
    case Type::INT32:
      return {std::move(kind), "float64", {Stored::kDecimal32, 4, scale}};
    case Type::INT64:
      return {std::move(kind), "float64", {Stored::kDecimal64, 8, scale}};
    case Type::BYTE_ARRAY:
      if (type.precision() > kMaxDecimalDigits) return NotCovered(std::move(kind));
      return {std::move(kind), "float64", {Stored::kDecimal128, 16, scale}};
    case Type::FIXED_LEN_BYTE_ARRAY: {
      const int32_t num_bytes = descriptor.type_length();
      if (num_bytes < 1 || num_bytes > 16) return NotCovered(std::move(kind));
      return {std::move(kind), "float64", {Stored::kDecimalBytes, num_bytes, scale}};
    }
    default:
      return NotCovered(std::move(kind));
  }
}

ValueType DescribeFixedBytes(const parquet::ColumnDescriptor& descriptor) {
  const int32_t num_bytes = descriptor.type_length();
  std::string kind = "fixed_size_binary(" + std::to_string(num_bytes) + ")";
  if (num_bytes < 1) return NotCovered(std::move(kind));
  return {std::move(kind), "uint8", {Stored::kFixedBytes, num_bytes}};
}

ValueType DescribePhysical(const parquet::ColumnDescriptor& descriptor) {
  switch (descriptor.physical_type()) {
    case Type::BOOLEAN:
      return {"bool", "bool", {Stored::kBool, 1}};
    case Type::INT32:
      return {"int32", "int32", {Stored::kInt32, 4}};
    case Type::INT64:
      return {"int64", "int64", {Stored::kInt64, 8}};
    case Type::FLOAT:
      return {"float32", "float32", {Stored::kFloat32, 4}};
    case Type::DOUBLE:
      return {"float64", "float64", {Stored::kFloat64, 8}};
    case Type::INT96:
      return {"timestamp[int96]", "int64", {Stored::kInt96, 12}};
    case Type::BYTE_ARRAY:
      return Bytes("binary");
    case Type::FIXED_LEN_BYTE_ARRAY:
      return DescribeFixedBytes(descriptor);
    default:
      return NotCovered("unknown physical type");
  }
}

// Text, bytes and types that are not covered.
ValueType DescribeOther(const LogicalType& logical) {
  switch (logical.type()) {
    case LogicalType::Type::STRING:
      return Bytes("string");
    case LogicalType::Type::ENUM:
      return Bytes("enum");
    case LogicalType::Type::JSON:
      return Bytes("json");
    case LogicalType::Type::BSON:
      return Bytes("bson");
    case LogicalType::Type::NIL:
      return NotCovered("null");
    default:
      return NotCovered(Printable(logical.ToString()));
  }
}

ValueType DescribeLogical(const parquet::ColumnDescriptor& descriptor) {
  const LogicalType* logical = descriptor.logical_type().get();
  const Type::type physical = descriptor.physical_type();
  if (logical == nullptr) return DescribePhysical(descriptor);
  switch (logical->type()) {
    case LogicalType::Type::NONE:
    case LogicalType::Type::UNDEFINED:
      return DescribePhysical(descriptor);
    case LogicalType::Type::INT:
      return DescribeInteger(static_cast<const parquet::IntLogicalType&>(*logical),
                             physical);
    case LogicalType::Type::DATE:
      return {"date", "int64", {Stored::kInt32, 4}};
    case LogicalType::Type::TIME:
      return DescribeTime(static_cast<const parquet::TimeLogicalType&>(*logical),
                          physical);
    case LogicalType::Type::TIMESTAMP:
      return DescribeTimestamp(
          static_cast<const parquet::TimestampLogicalType&>(*logical));
    case LogicalType::Type::FLOAT16:
      return {"float16", "float16", {Stored::kFloat16, 2}};
    case LogicalType::Type::DECIMAL:
      return DescribeDecimal(static_cast<const parquet::DecimalLogicalType&>(*logical),
                             descriptor);
    case LogicalType::Type::UUID:
      return {"uuid", "uint8", {Stored::kFixedBytes, descriptor.type_length()}};
    case LogicalType::Type::INTERVAL:
      return {"interval", "uint8", {Stored::kFixedBytes, descriptor.type_length()}};
    default:
      return DescribeOther(*logical);
  }
}

using parquet::schema::GroupNode;
using parquet::schema::Node;

bool IsList(const Node& node) {
  const LogicalType* logical = node.logical_type().get();
  return (logical != nullptr && logical->is_list()) ||
         node.converted_type() == parquet::ConvertedType::LIST;
}

bool IsMap(const Node& node) {
  const LogicalType* logical = node.logical_type().get();
  return (logical != nullptr && logical->is_map()) ||
         node.converted_type() == parquet::ConvertedType::MAP ||
         node.converted_type() == parquet::ConvertedType::MAP_KEY_VALUE;
}

// True if the one field of a list's repeated group is the element, not the group itself.
// Source: parquet-format, LogicalTypes.md, "Lists", rules for backward compatibility.
bool IsElementInGroup(const Node& list, const Node& repeated) {
  return repeated.is_group() &&
         static_cast<const GroupNode&>(repeated).field_count() == 1 &&
         repeated.name() != "array" && repeated.name() != list.name() + "_tuple";
}

// The nodes from the one below the root to the leaf.
std::vector<const Node*> PathTo(const parquet::ColumnDescriptor& descriptor) {
  std::vector<const Node*> path;
  for (const Node* node = descriptor.schema_node().get(); node->parent() != nullptr;
       node = node->parent()) {
    path.push_back(node);
  }
  std::ranges::reverse(path);
  return path;
}

// The path without the groups that only make lists and maps.
std::string ShortPath(const std::vector<const Node*>& path) {
  std::string text;
  for (size_t i = 0; i < path.size(); ++i) {
    text += (i == 0 ? "" : ".") + path[i]->name();
    // From a list to its element, which may be a list too.
    while (i + 1 < path.size() && path[i + 1]->is_repeated()) {
      const Node& repeated = *path[i + 1];
      if (IsMap(*path[i])) {
        ++i;
        break;
      }
      if (!IsList(*path[i])) break;
      i += IsElementInGroup(*path[i], repeated) ? 2 : 1;
    }
  }
  return text;
}

std::vector<int16_t> ElementLevels(const std::vector<const Node*>& path) {
  std::vector<int16_t> levels;
  int16_t level = 0;
  for (const Node* node : path) {
    if (!node->is_required()) ++level;
    if (node->is_repeated()) levels.push_back(level);
  }
  return levels;
}

}  // namespace

std::optional<kernels::Conversion> LeafColumn::ConversionTo(kernels::Dtype to) const {
  if (dtype.empty()) return std::nullopt;
  return kernels::Conversion::Find(stored, to);
}

std::vector<std::string> LeafColumn::dtypes() const {
  if (dtype.empty()) return {};
  if (is_bytes()) return {dtype};
  std::vector<std::string> names;
  for (const kernels::Dtype to : kernels::DtypesOf(stored))
    names.emplace_back(kernels::DtypeName(to));
  return names;
}

LeafColumn DescribeLeaf(const parquet::ColumnDescriptor& descriptor) {
  const std::vector<const Node*> path = PathTo(descriptor);
  ValueType value = DescribeLogical(descriptor);
  LeafColumn leaf;
  leaf.path = ShortPath(path);
  // Compared one by one: joining names costs more, and thousands of footers are opened.
  for (const Node* node : path) {
    if (IsUtf8(node->name())) continue;
    throw CorruptFile("column name is not UTF-8: " +
                      Printable(descriptor.path()->ToDotString()));
  }
  leaf.element_levels = ElementLevels(path);
  leaf.max_level = descriptor.max_definition_level();
  leaf.nullable = descriptor.max_definition_level() > descriptor.max_repetition_level();
  leaf.kind = std::move(value.kind);
  for (size_t i = 0; i < leaf.element_levels.size(); ++i)
    leaf.kind = "list<" + leaf.kind + ">";
  leaf.dtype = std::move(value.dtype);
  leaf.stored = value.stored;
  return leaf;
}

std::vector<LeafColumn> DescribeSchema(const parquet::SchemaDescriptor& schema) {
  std::vector<LeafColumn> leaves;
  std::map<std::string, int> num_with_path;
  leaves.reserve(static_cast<size_t>(schema.num_columns()));
  for (int i = 0; i < schema.num_columns(); ++i) {
    leaves.push_back(DescribeLeaf(*schema.Column(i)));
    ++num_with_path[leaves.back().path];
  }
  for (int i = 0; i < schema.num_columns(); ++i) {
    std::string& path = leaves[static_cast<size_t>(i)].path;
    if (num_with_path[path] > 1) path = schema.Column(i)->path()->ToDotString();
  }
  return leaves;
}

}  // namespace torchparquet
