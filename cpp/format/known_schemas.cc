#include "format/known_schemas.h"

#include <algorithm>
#include <mutex>

#include "format/declared_types.h"

namespace torchparquet {

std::shared_ptr<const Schema> KnownSchemas::Find(const FooterScan& footer) const {
  const std::shared_lock lock(mutex_);
  const auto schema = schemas_.find(footer.schema);
  if (schema == schemas_.end()) return nullptr;
  const auto& [depends_on_arrow, by_arrow_schema] = schema->second;
  const auto found =
      by_arrow_schema.find(depends_on_arrow ? footer.arrow_schema : std::string_view());
  return found == by_arrow_schema.end() ? nullptr : found->second;
}

void KnownSchemas::Add(const FooterScan& footer,
                       const std::shared_ptr<const Schema>& added) {
  const bool depends_on_arrow =
      std::ranges::any_of(added->leaves(), DependsOnArrowSchema);
  const std::lock_guard lock(mutex_);
  auto schema = schemas_.find(footer.schema);
  if (schema == schemas_.end()) {
    if (schemas_.size() >= kMaxSchemas) return;
    schema = schemas_.emplace(footer.schema, Known{.depends_on_arrow = depends_on_arrow})
                 .first;
  }
  auto& known = schema->second.by_arrow_schema;
  if (known.size() >= kMaxSchemas) return;
  known.try_emplace(
      std::string(depends_on_arrow ? footer.arrow_schema : std::string_view()), added);
}

}  // namespace torchparquet
