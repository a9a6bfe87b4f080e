#pragma once

#include <cstddef>
#include <cstdint>
#include <list>
#include <memory>
#include <mutex>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "files/parquet_file.h"

namespace torchparquet {

// The files of a data set, for all of its readers. Opens them on demand and keeps the
// most recently used ones open; a footer that was read is kept longer, so that it is
// parsed once and not in each epoch. Thread-safe: a file is opened by one thread while
// others wait for it. Not to be used in a forked child, where its lock may be held by a
// thread that no longer exists.
class ParquetFiles {
 public:
  static constexpr size_t kMaxOpenFiles = 64;
  // Of footers that are kept: as stored, and kFooterBytes more for each. Parsed they take
  // up to about twenty times as much, beside what readers may hold.
  static constexpr int64_t kMaxFooterBytes = int64_t{1} << 20;
  static constexpr int64_t kFooterBytes = int64_t{4} << 10;

  explicit ParquetFiles(std::vector<PlannedFile> planned)
      : planned_(std::move(planned)) {}

  std::shared_ptr<const ParquetFile> Open(int64_t file);
  // Closes the files that nobody reads at the moment.
  void Close();
  const std::string& path(int64_t file) const {
    return planned_[static_cast<size_t>(file)].path;
  }
  int64_t num_files() const { return static_cast<int64_t>(planned_.size()); }

 private:
  struct OpenFile {
    int64_t file;
    std::shared_ptr<const ParquetFile> opened;
  };

  void KeepFooter(int64_t file, const std::shared_ptr<const ParsedFooter>& footer);

  const std::vector<PlannedFile> planned_;
  std::mutex mutex_;
  std::list<OpenFile> open_;  // guarded by mutex_; most recently used first
  // By file. Those that are kept stay: in turns over more files than fit, those used last
  // would all have gone when they are wanted again. Guarded by mutex_.
  std::unordered_map<int64_t, std::shared_ptr<const ParsedFooter>> footers_;
  int64_t footer_bytes_ = 0;  // of them, by the bound's measure; guarded by mutex_
};

}  // namespace torchparquet
