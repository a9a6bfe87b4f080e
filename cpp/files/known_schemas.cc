#include "files/known_schemas.h"

#include <algorithm>
#include <mutex>

namespace torchparquet {

Leaves KnownSchemas::Find(const FooterScan& footer) const {
  const std::shared_lock lock(mutex_);
  const auto schema = schemas_.find(footer.schema);
  if (schema == schemas_.end()) return nullptr;
  const auto& [has_lists, leaves] = schema->second;
  const auto found = leaves.find(has_lists ? footer.arrow_schema : std::string_view());
  return found == leaves.end() ? nullptr : found->second;
}

void KnownSchemas::Add(const FooterScan& footer, const Leaves& leaves) {
  const bool has_lists = std::ranges::any_of(
      *leaves, [](const LeafColumn& leaf) { return !leaf.element_levels.empty(); });
  const std::lock_guard lock(mutex_);
  auto schema = schemas_.find(footer.schema);
  if (schema == schemas_.end()) {
    if (schemas_.size() >= kMaxSchemas) return;
    schema = schemas_.emplace(footer.schema, Schema{.has_lists = has_lists}).first;
  }
  auto& known = schema->second.leaves;
  if (known.size() >= kMaxSchemas) return;
  known.try_emplace(std::string(has_lists ? footer.arrow_schema : std::string_view()),
                    leaves);
}

}  // namespace torchparquet
