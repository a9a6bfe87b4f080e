#include "schema.h"

#include <parquet/schema.h>
#include <parquet/types.h>

#include <utility>

#include "errors.h"

namespace torchparquet {
namespace {

using parquet::LogicalType;
using parquet::Type;

// What a leaf is, before nullability and lists.
struct ValueType {
  std::string kind;
  std::string dtype;
  Conversion conversion;
};

ValueType NotCovered(std::string kind) {
  return {std::move(kind), "", Conversion::kUnsupported};
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
  if (physical == Type::INT64 && type.bit_width() == 64)
    return {name, name, Conversion::kSame64};
  if (physical != Type::INT32) return NotCovered(name);
  switch (type.bit_width()) {
    case 8:
      return {name, name,
              type.is_signed() ? Conversion::kInt32ToInt8 : Conversion::kInt32ToUInt8};
    case 16:
      return {name, name,
              type.is_signed() ? Conversion::kInt32ToInt16 : Conversion::kInt32ToUInt16};
    case 32:
      return {name, name, Conversion::kSame32};
    default:
      return NotCovered(name);
  }
}

ValueType DescribeTime(const parquet::TimeLogicalType& type, Type::type physical) {
  const std::string kind = std::string("time[") + UnitName(type.time_unit()) + "]";
  if (physical == Type::INT32) return {kind, "int64", Conversion::kInt32ToInt64};
  return {kind, "int64", Conversion::kSame64};
}

ValueType DescribeTimestamp(const parquet::TimestampLogicalType& type) {
  const std::string kind = std::string("timestamp[") + UnitName(type.time_unit()) +
                           (type.is_adjusted_to_utc() ? ", UTC]" : "]");
  return {kind, "int64", Conversion::kSame64};
}

ValueType DescribePhysical(const parquet::ColumnDescriptor& descriptor) {
  switch (descriptor.physical_type()) {
    case Type::BOOLEAN:
      return {"bool", "bool", Conversion::kBool};
    case Type::INT32:
      return {"int32", "int32", Conversion::kSame32};
    case Type::INT64:
      return {"int64", "int64", Conversion::kSame64};
    case Type::FLOAT:
      return {"float32", "float32", Conversion::kSame32};
    case Type::DOUBLE:
      return {"float64", "float64", Conversion::kSame64};
    case Type::INT96:
      return NotCovered("timestamp[int96]");
    case Type::BYTE_ARRAY:
      return NotCovered("binary");
    case Type::FIXED_LEN_BYTE_ARRAY:
      return NotCovered("fixed_size_binary(" + std::to_string(descriptor.type_length()) +
                        ")");
    default:
      return NotCovered("unknown physical type");
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
      return {"date", "int64", Conversion::kInt32ToInt64};
    case LogicalType::Type::TIME:
      return DescribeTime(static_cast<const parquet::TimeLogicalType&>(*logical),
                          physical);
    case LogicalType::Type::TIMESTAMP:
      return DescribeTimestamp(
          static_cast<const parquet::TimestampLogicalType&>(*logical));
    case LogicalType::Type::FLOAT16:
      return {"float16", "float16", Conversion::kSame16};
    case LogicalType::Type::DECIMAL: {
      const auto& decimal = static_cast<const parquet::DecimalLogicalType&>(*logical);
      return NotCovered("decimal(" + std::to_string(decimal.precision()) + ", " +
                        std::to_string(decimal.scale()) + ")");
    }
    case LogicalType::Type::STRING:
      return NotCovered("string");
    case LogicalType::Type::NIL:
      return NotCovered("null");
    default:
      return NotCovered(Printable(logical->ToString()));
  }
}

}  // namespace

LeafColumn DescribeLeaf(const parquet::ColumnDescriptor& descriptor) {
  LeafColumn leaf;
  leaf.path = descriptor.path()->ToDotString();
  if (!IsUtf8(leaf.path))
    throw CorruptFile("column name is not UTF-8: " + Printable(leaf.path));
  leaf.nullable = descriptor.max_definition_level() > 0;
  ValueType value = DescribeLogical(descriptor);
  if (descriptor.max_repetition_level() > 0)
    value = NotCovered("list<" + value.kind + ">");
  leaf.kind = std::move(value.kind);
  leaf.dtype = std::move(value.dtype);
  leaf.conversion = value.conversion;
  return leaf;
}

std::vector<LeafColumn> DescribeSchema(const parquet::SchemaDescriptor& schema) {
  std::vector<LeafColumn> leaves;
  leaves.reserve(static_cast<size_t>(schema.num_columns()));
  for (int i = 0; i < schema.num_columns(); ++i)
    leaves.push_back(DescribeLeaf(*schema.Column(i)));
  return leaves;
}

}  // namespace torchparquet
