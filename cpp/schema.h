#pragma once

#include <optional>
#include <string>
#include <vector>

#include "kernels/conversion.h"

namespace parquet {
class ColumnDescriptor;
class SchemaDescriptor;
}  // namespace parquet

namespace torchparquet {

// One leaf column of a schema.
struct LeafColumn {
  std::string path;   // dotted
  std::string kind;   // readable type, e.g. "int32", "timestamp[us]", "list<string>"
  std::string dtype;  // torch's name of the usual output type; empty where not covered
  bool nullable = false;
  kernels::StoredType stored;  // where covered

  // Items of the tensor for each row: 1, or the bytes of a fixed-size binary.
  int64_t cell_items() const {
    return stored.stored == kernels::Stored::kFixedBytes ? stored.num_bytes : 1;
  }

  // Nothing where the column is not covered or the dtype does not fit it.
  std::optional<kernels::Conversion> ConversionTo(kernels::Dtype to) const;
  // The names of the dtypes that it can be read as.
  std::vector<std::string> dtypes() const;

  bool operator==(const LeafColumn&) const = default;
};

// Describes a leaf: the one table from Parquet's physical and logical types to tensors.
// What is not covered has an empty dtype. Throws Error(kCorruptFile)
// for a name that is not UTF-8, as the format demands.
LeafColumn DescribeLeaf(const parquet::ColumnDescriptor& descriptor);
std::vector<LeafColumn> DescribeSchema(const parquet::SchemaDescriptor& schema);

}  // namespace torchparquet
