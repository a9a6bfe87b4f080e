#include <parquet/schema.h>
#include <parquet/types.h>

#include <algorithm>

#include "bridge/arrow/parts.h"

namespace torchparquet::bridge {
namespace {

using parquet::schema::GroupNode;
using parquet::schema::Node;

PhysicalType PhysicalOf(parquet::Type::type type) {
  switch (type) {
    case parquet::Type::BOOLEAN:
      return PhysicalType::kBoolean;
    case parquet::Type::INT32:
      return PhysicalType::kInt32;
    case parquet::Type::INT64:
      return PhysicalType::kInt64;
    case parquet::Type::INT96:
      return PhysicalType::kInt96;
    case parquet::Type::FLOAT:
      return PhysicalType::kFloat;
    case parquet::Type::DOUBLE:
      return PhysicalType::kDouble;
    case parquet::Type::BYTE_ARRAY:
      return PhysicalType::kByteArray;
    case parquet::Type::FIXED_LEN_BYTE_ARRAY:
      return PhysicalType::kFixedBytes;
    default:
      return PhysicalType::kUnknown;
  }
}

LogicalType::Unit UnitOf(parquet::LogicalType::TimeUnit::unit unit) {
  switch (unit) {
    case parquet::LogicalType::TimeUnit::MILLIS:
      return LogicalType::Unit::kMillis;
    case parquet::LogicalType::TimeUnit::MICROS:
      return LogicalType::Unit::kMicros;
    case parquet::LogicalType::TimeUnit::NANOS:
      return LogicalType::Unit::kNanos;
    default:
      return LogicalType::Unit::kUnknown;
  }
}

LogicalType::Kind KindOf(parquet::LogicalType::Type::type type) {
  using Type = parquet::LogicalType::Type;
  using Kind = LogicalType::Kind;
  switch (type) {
    case Type::STRING:
      return Kind::kString;
    case Type::ENUM:
      return Kind::kEnum;
    case Type::JSON:
      return Kind::kJson;
    case Type::BSON:
      return Kind::kBson;
    case Type::NIL:
      return Kind::kNull;
    case Type::INT:
      return Kind::kInt;
    case Type::DATE:
      return Kind::kDate;
    case Type::TIME:
      return Kind::kTime;
    case Type::TIMESTAMP:
      return Kind::kTimestamp;
    case Type::DECIMAL:
      return Kind::kDecimal;
    case Type::FLOAT16:
      return Kind::kFloat16;
    case Type::UUID:
      return Kind::kUuid;
    case Type::INTERVAL:
      return Kind::kInterval;
    default:  // a column can still be read as it is stored
      return Kind::kNone;
  }
}

LogicalType LogicalOf(const parquet::LogicalType* type) {
  if (type == nullptr) return {};
  LogicalType logical{.kind = KindOf(type->type())};
  switch (logical.kind) {
    case LogicalType::Kind::kInt: {
      const auto& integer = static_cast<const parquet::IntLogicalType&>(*type);
      logical.is_signed = integer.is_signed();
      logical.bit_width = integer.bit_width();
      break;
    }
    case LogicalType::Kind::kTime: {
      const auto& time = static_cast<const parquet::TimeLogicalType&>(*type);
      logical.unit = UnitOf(time.time_unit());
      break;
    }
    case LogicalType::Kind::kTimestamp: {
      const auto& timestamp = static_cast<const parquet::TimestampLogicalType&>(*type);
      logical.unit = UnitOf(timestamp.time_unit());
      logical.is_utc = timestamp.is_adjusted_to_utc();
      break;
    }
    case LogicalType::Kind::kDecimal: {
      const auto& decimal = static_cast<const parquet::DecimalLogicalType&>(*type);
      logical.precision = decimal.precision();
      logical.scale = decimal.scale();
      break;
    }
    default:
      break;
  }
  return logical;
}

SchemaNode NodeOf(const Node& node) {
  const parquet::LogicalType* logical = node.logical_type().get();
  const auto converted = node.converted_type();
  return {.name = node.name(),
          .is_required = node.is_required(),
          .is_repeated = node.is_repeated(),
          .is_list = (logical != nullptr && logical->is_list()) ||
                     converted == parquet::ConvertedType::LIST,
          .is_map = (logical != nullptr && logical->is_map()) ||
                    converted == parquet::ConvertedType::MAP ||
                    converted == parquet::ConvertedType::MAP_KEY_VALUE,
          .num_fields =
              node.is_group() ? static_cast<const GroupNode&>(node).field_count() : 0};
}

}  // namespace

std::vector<SchemaLeaf> LeavesOf(const parquet::SchemaDescriptor& schema) {
  std::vector<SchemaLeaf> leaves;
  leaves.reserve(static_cast<size_t>(schema.num_columns()));
  for (int i = 0; i < schema.num_columns(); ++i) {
    const parquet::ColumnDescriptor& column = *schema.Column(i);
    SchemaLeaf& leaf = leaves.emplace_back();
    for (const Node* node = column.schema_node().get(); node->parent() != nullptr;
         node = node->parent()) {
      leaf.path.push_back(NodeOf(*node));
    }
    std::ranges::reverse(leaf.path);
    leaf.physical = PhysicalOf(column.physical_type());
    leaf.type_length = column.type_length();
    leaf.logical = LogicalOf(column.logical_type().get());
    leaf.max_definition_level = column.max_definition_level();
    leaf.max_repetition_level = column.max_repetition_level();
    leaf.field_id = column.schema_node()->field_id();
  }
  return leaves;
}

}  // namespace torchparquet::bridge
