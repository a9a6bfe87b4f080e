#include "format/parsed_footer.h"

#include <optional>
#include <utility>

namespace torchparquet {

Failure ParsedFooter::Describe(int64_t row_group, int column, ChunkFacts* facts) const {
  if (arrow_chunks != nullptr) {
    return arrow_chunks->Describe(static_cast<int>(row_group), column, facts);
  }
  const auto index = static_cast<size_t>(row_group) * schema->leaves().size() +
                     static_cast<size_t>(column);
  *facts = ChunkFacts{chunks[index]};
  return {};
}

int64_t ParsedFooter::MemoryBytes() const {
  constexpr int64_t kArrowFactor = 20;
  const auto own =
      static_cast<int64_t>(sizeof(*this) + row_groups.capacity() * sizeof(RowGroupFacts) +
                           chunks.capacity() * sizeof(ChunkPlace));
  return arrow_chunks == nullptr ? own : own + kArrowFactor * num_bytes;
}

bool Fits(const FooterScan& scan, const Schema& schema) {
  const std::vector<LeafColumn>& leaves = schema.leaves();
  if (scan.num_column_orders.value_or(leaves.size()) != leaves.size()) return false;
  if (scan.row_group_num_rows.empty()) return true;
  if (scan.has_value_per_row.size() != leaves.size()) return false;
  for (size_t i = 0; i < leaves.size(); ++i) {
    const bool is_flat = leaves[i].element_levels.empty();
    if (is_flat && !scan.has_value_per_row[i]) return false;
  }
  return true;
}

ParsedFooter FooterOf(const FooterScan& scan, int64_t num_bytes,
                      const FileIdentity& identity,
                      std::shared_ptr<const Schema> schema) {
  ParsedFooter footer{.identity = identity, .num_bytes = num_bytes};
  footer.row_groups.reserve(scan.row_group_num_rows.size());
  const auto num_columns = static_cast<int>(schema->leaves().size());
  for (const int64_t rows : scan.row_group_num_rows) {
    footer.row_groups.push_back({rows, num_columns});
  }
  footer.schema = std::move(schema);
  footer.chunks = scan.chunks;
  return footer;
}

}  // namespace torchparquet
