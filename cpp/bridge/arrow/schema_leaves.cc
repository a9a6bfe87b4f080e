#include <parquet/schema.h>
#include <parquet/types.h>

#include <algorithm>
#include <utility>

#include "bridge/arrow/parts.h"

namespace torchparquet::bridge {
namespace {

using parquet::schema::GroupNode;
using parquet::schema::Node;

// Both sides have the numbers of the format.
PhysicalType PhysicalOf(parquet::Type::type type) {
  static_assert(parquet::Type::FIXED_LEN_BYTE_ARRAY ==
                static_cast<int>(PhysicalType::kFixedBytes));
  return type <= parquet::Type::FIXED_LEN_BYTE_ARRAY ? static_cast<PhysicalType>(type)
                                                     : PhysicalType::kUnknown;
}

LogicalType::Unit UnitOf(parquet::LogicalType::TimeUnit::unit unit) {
  static_assert(parquet::LogicalType::TimeUnit::NANOS ==
                static_cast<int>(LogicalType::Unit::kNanos));
  return static_cast<LogicalType::Unit>(unit);
}

LogicalType::Kind KindOf(parquet::LogicalType::Type::type type) {
  using Type = parquet::LogicalType::Type;
  using Kind = LogicalType::Kind;
  static constexpr std::pair<Type::type, Kind> kKinds[] = {
      {Type::STRING, Kind::kString},
      {Type::ENUM, Kind::kEnum},
      {Type::JSON, Kind::kJson},
      {Type::BSON, Kind::kBson},
      {Type::NIL, Kind::kNull},
      {Type::INT, Kind::kInt},
      {Type::DATE, Kind::kDate},
      {Type::TIME, Kind::kTime},
      {Type::TIMESTAMP, Kind::kTimestamp},
      {Type::DECIMAL, Kind::kDecimal},
      {Type::FLOAT16, Kind::kFloat16},
      {Type::UUID, Kind::kUuid},
      {Type::INTERVAL, Kind::kInterval}};
  for (const auto& [arrows, kind] : kKinds) {
    if (arrows == type) return kind;
  }
  return Kind::kNone;  // a column can still be read as it is stored
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
