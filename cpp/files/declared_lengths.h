#pragma once

#include <vector>

#include "files/schema.h"

namespace parquet {
class FileMetaData;
}  // namespace parquet

namespace torchparquet {

// Sets the list_length of leaves in one list that the Arrow schema in the file's metadata
// declares as a fixed_size_list. Parquet itself knows no such lists. A schema that is
// broken, or that does not fit the columns leaf by leaf, as after a tool that knows
// nothing of it, declares nothing. Arrow's own reader of schemas is not asked: it calls
// the types that Python registers, which takes the GIL, and makes a type of each field,
// however often one is referred to.
void ReadDeclaredLengths(const parquet::FileMetaData& metadata,
                         std::vector<LeafColumn>* leaves);

}  // namespace torchparquet
