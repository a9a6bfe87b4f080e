#include "format/schema.h"

#include <algorithm>
#include <array>
#include <map>
#include <string_view>
#include <utility>

#include "base/errors.h"

namespace torchparquet {
namespace {

using kernels::Stored;
using kernels::StoredType;
using Kind = LogicalType::Kind;

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

struct TimeUnit {
  std::string_view name;
  int64_t nanoseconds;
};

const TimeUnit& UnitOf(const LogicalType& type) {
  static constexpr std::array<TimeUnit, 4> kUnits = {
      {{"unknown unit", 0}, {"ms", 1'000'000}, {"us", 1'000}, {"ns", 1}}};
  return kUnits[static_cast<size_t>(type.unit)];
}

constexpr int64_t kDayNanoseconds = 86'400'000'000'000;

ValueType DescribeInteger(const LogicalType& type, PhysicalType physical) {
  const std::string name = Text(type.is_signed ? "int" : "uint", type.bit_width);
  const bool is_signed = type.is_signed;
  if (physical == PhysicalType::kInt64 && type.bit_width == 64)
    return {name, name, {is_signed ? Stored::kInt64 : Stored::kUInt64, 8}};
  if (physical != PhysicalType::kInt32) return NotCovered(name);
  switch (type.bit_width) {
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

ValueType DescribeTime(const LogicalType& type, PhysicalType physical) {
  const auto& [unit, nanoseconds] = UnitOf(type);
  std::string kind = "time[" + std::string(unit) + "]";
  if (physical == PhysicalType::kInt32) {
    return {std::move(kind), "int64", {Stored::kInt32, 4, 0, nanoseconds}};
  }
  return {std::move(kind), "int64", {Stored::kInt64, 8, 0, nanoseconds}};
}

ValueType DescribeTimestamp(const LogicalType& type) {
  const auto& [unit, nanoseconds] = UnitOf(type);
  return {"timestamp[" + std::string(unit) + (type.is_utc ? ", UTC]" : "]"),
          "int64",
          {Stored::kInt64, 8, 0, nanoseconds}};
}

ValueType DescribeDecimal(const SchemaLeaf& leaf) {
  const LogicalType& type = leaf.logical;
  std::string kind = Text("decimal(", type.precision, ", ", type.scale, ")");
  const int32_t scale = type.scale;
  switch (leaf.physical) {
    case PhysicalType::kInt32:
      return {std::move(kind), "float64", {Stored::kDecimal32, 4, scale}};
    case PhysicalType::kInt64:
      return {std::move(kind), "float64", {Stored::kDecimal64, 8, scale}};
    case PhysicalType::kByteArray:
      if (type.precision > kMaxDecimalDigits) return NotCovered(std::move(kind));
      return {std::move(kind), "float64", {Stored::kDecimal128, 16, scale}};
    case PhysicalType::kFixedBytes: {
      const int32_t num_bytes = leaf.type_length;
      if (num_bytes < 1 || num_bytes > 16) return NotCovered(std::move(kind));
      return {std::move(kind), "float64", {Stored::kDecimalBytes, num_bytes, scale}};
    }
    default:
      return NotCovered(std::move(kind));
  }
}

ValueType DescribeFixedBytes(const SchemaLeaf& leaf) {
  const int32_t num_bytes = leaf.type_length;
  std::string kind = Text("fixed_size_binary(", num_bytes, ")");
  if (num_bytes < 1) return NotCovered(std::move(kind));
  return {std::move(kind), "uint8", {Stored::kFixedBytes, num_bytes}};
}

ValueType DescribePhysical(const SchemaLeaf& leaf) {
  switch (leaf.physical) {
    case PhysicalType::kBoolean:
      return {"bool", "bool", {Stored::kBool, 1}};
    case PhysicalType::kInt32:
      return {"int32", "int32", {Stored::kInt32, 4}};
    case PhysicalType::kInt64:
      return {"int64", "int64", {Stored::kInt64, 8}};
    case PhysicalType::kFloat:
      return {"float32", "float32", {Stored::kFloat32, 4}};
    case PhysicalType::kDouble:
      return {"float64", "float64", {Stored::kFloat64, 8}};
    case PhysicalType::kInt96:
      return {"timestamp[int96]", "int64", {Stored::kInt96, 12, 0, 1}};
    case PhysicalType::kByteArray:
      return Bytes("binary");
    case PhysicalType::kFixedBytes:
      return DescribeFixedBytes(leaf);
    default:
      return NotCovered("unknown physical type");
  }
}

ValueType DescribeValue(const SchemaLeaf& leaf) {
  const LogicalType& logical = leaf.logical;
  switch (logical.kind) {
    case Kind::kNone:
      return DescribePhysical(leaf);
    case Kind::kInt:
      return DescribeInteger(logical, leaf.physical);
    case Kind::kDate:
      return {"date", "int64", {Stored::kInt32, 4, 0, kDayNanoseconds}};
    case Kind::kTime:
      return DescribeTime(logical, leaf.physical);
    case Kind::kTimestamp:
      return DescribeTimestamp(logical);
    case Kind::kFloat16:
      return {"float16", "float16", {Stored::kFloat16, 2}};
    case Kind::kDecimal:
      return DescribeDecimal(leaf);
    case Kind::kUuid:
      return {"uuid", "uint8", {Stored::kFixedBytes, leaf.type_length}};
    case Kind::kInterval:
      return {"interval", "uint8", {Stored::kFixedBytes, leaf.type_length}};
    case Kind::kString:
      return Bytes("string");
    case Kind::kEnum:
      return Bytes("enum");
    case Kind::kJson:
      return Bytes("json");
    case Kind::kBson:
      return Bytes("bson");
    case Kind::kNull:
      return {"null", "", {Stored::kNull, 4}};
  }
  return NotCovered("unknown logical type");
}

// True if the one field of a list's repeated group is the element, not the group itself.
// Source: parquet-format, LogicalTypes.md, "Lists", rules for backward compatibility.
bool IsElementInGroup(const SchemaNode& list, const SchemaNode& repeated) {
  return repeated.num_fields == 1 && repeated.name != "array" &&
         repeated.name != list.name + "_tuple";
}

// The path without the groups that only make lists and maps.
std::string ShortPath(const std::vector<SchemaNode>& path) {
  std::string text;
  for (size_t i = 0; i < path.size(); ++i) {
    text += (i == 0 ? "" : ".") + path[i].name;
    // From a list to its element, which may be a list too.
    while (i + 1 < path.size() && path[i + 1].is_repeated) {
      if (path[i].is_map) {
        ++i;
        break;
      }
      if (!path[i].is_list) break;
      i += IsElementInGroup(path[i], path[i + 1]) ? 2 : 1;
    }
  }
  return text;
}

std::vector<int16_t> ElementLevels(const std::vector<SchemaNode>& path) {
  std::vector<int16_t> levels;
  int16_t level = 0;
  for (const SchemaNode& node : path) {
    if (!node.is_required) ++level;
    if (node.is_repeated) levels.push_back(level);
  }
  return levels;
}

}  // namespace

std::optional<kernels::Conversion> LeafColumn::ConversionTo(
    kernels::Dtype to, int64_t unit_nanoseconds,
    std::shared_ptr<const kernels::Transform> transform) const {
  if (dtype.empty() && !holds_nulls()) return std::nullopt;
  return kernels::Conversion::Find(stored, to, unit_nanoseconds, std::move(transform));
}

std::vector<std::string> LeafColumn::dtypes() const {
  if (dtype.empty()) return {};
  if (is_bytes()) return {dtype};
  std::vector<std::string> names;
  for (const kernels::Dtype to : kernels::DtypesOf(stored))
    names.emplace_back(kernels::DtypeName(to));
  return names;
}

LeafColumn DescribeLeaf(const SchemaLeaf& stored) {
  ValueType value = DescribeValue(stored);
  LeafColumn leaf;
  leaf.path = ShortPath(stored.path);
  // Compared one by one: joining names costs more, and thousands of footers are opened.
  for (const SchemaNode& node : stored.path) {
    if (IsUtf8(node.name)) continue;
    throw CorruptFile("column name is not UTF-8: ", Printable(stored.DotPath()));
  }
  leaf.element_levels = ElementLevels(stored.path);
  leaf.max_level = stored.max_definition_level;
  leaf.nullable = stored.max_definition_level > stored.max_repetition_level;
  leaf.physical = stored.physical;
  leaf.kind = std::move(value.kind);
  for (size_t i = 0; i < leaf.element_levels.size(); ++i)
    leaf.kind = "list<" + leaf.kind + ">";
  leaf.dtype = std::move(value.dtype);
  leaf.stored = value.stored;
  leaf.field_id = stored.field_id;
  return leaf;
}

std::vector<LeafColumn> DescribeSchema(const std::vector<SchemaLeaf>& schema) {
  std::vector<LeafColumn> leaves;
  std::map<std::string, int> num_with_path;
  leaves.reserve(schema.size());
  for (const SchemaLeaf& stored : schema) {
    leaves.push_back(DescribeLeaf(stored));
    ++num_with_path[leaves.back().path];
  }
  for (size_t i = 0; i < schema.size(); ++i) {
    std::string& path = leaves[i].path;
    if (num_with_path[path] > 1) path = schema[i].DotPath();
  }
  return leaves;
}

Schema::Schema(std::vector<LeafColumn> leaves) : leaves_(std::move(leaves)) {
  for (size_t i = 0; i < leaves_.size(); ++i) {
    leaf_of_path_.try_emplace(leaves_[i].path, static_cast<int>(i));
  }
}

int Schema::Find(const std::string& path) const {
  const auto found = leaf_of_path_.find(path);
  return found == leaf_of_path_.end() ? -1 : found->second;
}

}  // namespace torchparquet
