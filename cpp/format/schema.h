#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "bridge/footer_facts.h"
#include "kernels/values/conversion.h"

namespace torchparquet {

// One leaf column of a schema.
struct LeafColumn {
  // Dotted, without the groups that only make lists and maps: "a" for a.list.element,
  // "m.key" for m.key_value.key. With all groups if two leaves would otherwise have one
  // path.
  std::string path;
  std::string kind;       // readable type, e.g. "int32", "timestamp[us]", "list<string>"
  std::string dtype;      // torch's name of the default dtype; empty if not covered
  bool nullable = false;  // rows, lists or elements
  PhysicalType physical = PhysicalType::kUnknown;
  kernels::StoredType stored;  // if covered; of an element, in lists
  // By list around the value, outermost first: the lowest definition level at which the
  // list has an element. One below is an empty list, further below a null.
  std::vector<int16_t> element_levels = {};
  int16_t max_level = 0;  // the definition level of a value
  // The length of its lists, if it is in one list and the file declares the length; else
  // 0.
  int64_t list_length = 0;
  // The lengths of its lists, outermost first, if it is in several; 0 where the file
  // declares none.
  std::vector<int64_t> list_lengths = {};
  // The shape of a row, if it is one tensor of a fixed shape, as Arrow stores it; else
  // "".
  std::string tensor_shape = {};
  int32_t field_id = -1;  // by which tables know columns; -1: none

  // Items of the tensor per value: 1, or the bytes of a fixed-size binary.
  int64_t cell_items() const {
    return stored.stored == kernels::Stored::kFixedBytes ? stored.num_bytes : 1;
  }
  // True if the schema says that every value is null, in lists too.
  bool holds_nulls() const { return stored.stored == kernels::Stored::kNull; }
  // True if the schema says that every row is null.
  bool is_null() const { return holds_nulls() && element_levels.empty(); }
  bool is_bytes() const { return stored.stored == kernels::Stored::kBytes; }
  // The levels of offsets from a row to its items: one per list, and one more for
  // strings. 0: each row is one value.
  int64_t num_offsets() const {
    return static_cast<int64_t>(element_levels.size()) + is_bytes();
  }

  // Nothing if the column is not covered, the dtype, the unit or the transform does not
  // fit, or values differ in length.
  std::optional<kernels::Conversion> ConversionTo(
      kernels::Dtype to, int64_t unit_nanoseconds = 0,
      std::shared_ptr<const kernels::Transform> transform = nullptr) const;
  // The names of the dtypes that the column can be read as.
  std::vector<std::string> dtypes() const;

  bool operator==(const LeafColumn&) const = default;
};

// The leaf columns of a file, in its order. Immutable, thread-safe.
class Schema {
 public:
  explicit Schema(std::vector<LeafColumn> leaves);
  Schema(const Schema&) = delete;
  Schema& operator=(const Schema&) = delete;

  const std::vector<LeafColumn>& leaves() const { return leaves_; }
  // The index of the first leaf with that dotted path, or -1.
  int Find(const std::string& path) const;

  bool operator==(const Schema& other) const { return leaves_ == other.leaves_; }

 private:
  const std::vector<LeafColumn> leaves_;
  std::unordered_map<std::string_view, int> leaf_of_path_;  // views of leaves_
};

// Describes a leaf, by the one table from Parquet's physical and logical types to
// tensors. A type that is not covered has an empty dtype. Throws Error(kCorruptFile) for
// a name that is not UTF-8, which the format requires.
LeafColumn DescribeLeaf(const SchemaLeaf& stored);
std::vector<LeafColumn> DescribeSchema(const std::vector<SchemaLeaf>& schema);

}  // namespace torchparquet
