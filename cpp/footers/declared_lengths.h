#pragma once

#include <vector>

#include "bridge/footer_facts.h"
#include "footers/schema.h"

namespace torchparquet {

// Sets the list_length of leaves in one list that the Arrow schema in the footer
// declares as a fixed_size_list. Parquet itself has no such lists. A schema that is
// broken, or does not fit the columns leaf by leaf, declares nothing; tools that ignore
// the schema may have changed the columns. Arrow's own schema reader is not used: it
// calls the types that Python registers, which takes the GIL, and makes a type for each
// field however often one is repeated.
void ReadDeclaredLengths(const FooterFacts& facts, std::vector<LeafColumn>* leaves);

}  // namespace torchparquet
