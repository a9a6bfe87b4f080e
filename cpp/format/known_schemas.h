#pragma once

#include <cstddef>
#include <map>
#include <memory>
#include <shared_mutex>
#include <string>
#include <string_view>
#include <vector>

#include "format/footer_scan.h"
#include "format/schema.h"

namespace torchparquet {

// The schemas of files opened before, by their bytes in footers: most files of a data set
// have the same schema. Thread-safe.
class KnownSchemas {
 public:
  // The limit, for data sets in which every file has its own schema.
  static constexpr size_t kMaxSchemas = 256;

  // Null if it is not known.
  std::shared_ptr<const Schema> Find(const FooterScan& footer) const;
  void Add(const FooterScan& footer, const std::shared_ptr<const Schema>& schema);

 private:
  struct Known {
    bool depends_on_arrow = false;
    // By the Arrow schema, if leaves depend on it; else by "".
    std::map<std::string, std::shared_ptr<const Schema>, std::less<>> by_arrow_schema =
        {};
  };

  mutable std::shared_mutex mutex_;
  std::map<std::string, Known, std::less<>> schemas_;  // guarded by mutex_
};

}  // namespace torchparquet
