#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "draws.h"
#include "recipes/nested_recipe.h"

namespace parquet {
class SchemaDescriptor;
class WriterProperties;
}  // namespace parquet

namespace torchparquet::testing {

// The entries of a column chunk.
struct Shredded {
  std::vector<int16_t> definition;
  std::vector<int16_t> repetition;
  std::vector<const std::string*> values;  // of the entries that are some
};

// By row group and column.
using ShreddedFile = std::vector<std::vector<Shredded>>;

// Writes a file whose pages, of the first version, end wherever chance has it, also
// within rows, which Arrow's column writer avoids.
void WriteSplitPages(const std::string& path, const NestedRecipe& recipe,
                     const parquet::SchemaDescriptor& schema,
                     const std::shared_ptr<parquet::WriterProperties>& properties,
                     const ShreddedFile& row_groups);

}  // namespace torchparquet::testing
