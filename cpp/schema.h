#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace parquet {
class ColumnDescriptor;
class SchemaDescriptor;
}  // namespace parquet

namespace torchparquet {

// How a stored value becomes an output value. The one table from Parquet's physical
// and logical types to tensors is DescribeLeaf, in schema.cc.
enum class Conversion {
  kUnsupported,
  kBool,    // BOOLEAN -> bool
  kSame16,  // FIXED_LEN_BYTE_ARRAY(2) -> float16
  kSame32,  // INT32, FLOAT -> int32, uint32, float32
  kSame64,  // INT64, DOUBLE -> int64, uint64, float64, time, timestamp
  kInt32ToInt8,
  kInt32ToUInt8,
  kInt32ToInt16,
  kInt32ToUInt16,
  kInt32ToInt64,  // date, time[ms]
};

// One leaf column of a schema.
struct LeafColumn {
  std::string path;   // dotted
  std::string kind;   // readable type, e.g. "int32", "timestamp[us]", "list<string>"
  std::string dtype;  // numpy name of the output type; empty where not covered
  bool nullable = false;
  Conversion conversion = Conversion::kUnsupported;

  bool operator==(const LeafColumn&) const = default;
};

// Describes a leaf. What is not covered has an empty dtype. Throws Error(kCorruptFile)
// for a name that is not UTF-8, as the format demands.
LeafColumn DescribeLeaf(const parquet::ColumnDescriptor& descriptor);
std::vector<LeafColumn> DescribeSchema(const parquet::SchemaDescriptor& schema);

}  // namespace torchparquet
