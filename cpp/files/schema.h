#pragma once

#include <optional>
#include <string>
#include <vector>

#include "kernels/values/conversion.h"

namespace parquet {
class ColumnDescriptor;
class SchemaDescriptor;
}  // namespace parquet

namespace torchparquet {

// One leaf column of a schema.
struct LeafColumn {
  // Dotted, without the groups that only make lists and maps: "a" for a.list.element,
  // "m.key" for m.key_value.key. Where two leaves would have one path, all is in it.
  std::string path;
  std::string kind;   // readable type, e.g. "int32", "timestamp[us]", "list<string>"
  std::string dtype;  // torch's name of the usual output type; empty where not covered
  bool nullable = false;       // rows, lists, or what is in them
  kernels::StoredType stored;  // where covered; of an element, in lists
  // For each list around the value, the outermost first, the definition level from which
  // on the list has an element there. One below is an empty list, further below a null.
  std::vector<int16_t> element_levels = {};
  int16_t max_level = 0;  // the definition level of a value
  // Of each of its lists, where it is in one and the file declares that; else 0.
  int64_t list_length = 0;

  // Items of the tensor for each value: 1, or the bytes of a fixed-size binary.
  int64_t cell_items() const {
    return stored.stored == kernels::Stored::kFixedBytes ? stored.num_bytes : 1;
  }
  bool is_bytes() const { return stored.stored == kernels::Stored::kBytes; }
  // How often offsets lead from a row to its items: once for each list, and once more
  // for strings. 0: a row is a value.
  int64_t num_offsets() const {
    return static_cast<int64_t>(element_levels.size()) + is_bytes();
  }

  // Nothing where the column is not covered, the dtype does not fit it, or its values
  // differ in length.
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
