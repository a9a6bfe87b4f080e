#pragma once

#include <vector>

#include "bridge/footer_facts.h"

namespace parquet {
class SchemaDescriptor;
}  // namespace parquet

namespace torchparquet::bridge {

std::vector<SchemaLeaf> LeavesOf(const parquet::SchemaDescriptor& schema);

}  // namespace torchparquet::bridge
