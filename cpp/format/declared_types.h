#pragma once

#include <vector>

#include "bridge/footer_facts.h"
#include "format/schema.h"

namespace torchparquet {

// True if the Arrow schema may say more of the leaf than Parquet's.
bool DependsOnArrowSchema(const LeafColumn& leaf);

// Adds to leaves what Parquet itself has no types for, and the Arrow schema in the footer
// declares: the lengths of fixed_size_lists, durations, tensors of a fixed shape. A
// schema that is broken, or does not fit the columns leaf by leaf, declares nothing;
// tools that ignore the schema may have changed the columns. Arrow's own schema reader is
// not used, nor pyarrow's: it calls the types that Python registers, which takes the GIL,
// and makes a type for each field however often one is repeated. 1.3 MB of schema can
// stand for 6 GB of names, and pyarrow.ipc.read_schema ends the process without memory.
void ReadDeclaredTypes(const FooterFacts& facts, std::vector<LeafColumn>* leaves);

}  // namespace torchparquet
