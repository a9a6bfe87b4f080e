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

// The files of a data set, for all of its readers. Opens files on demand and keeps the
// most recently used ones open. Keeps footers longer, so that they are parsed once and
// not in each epoch. Thread-safe: one thread opens a file while others wait for it. Do
// not use it in a forked child, where a thread that no longer exists may hold its lock.
class ParquetFiles {
 public:
  static constexpr size_t kMaxOpenFiles = 64;
  // The limit on the memory of kept footers, in addition to the memory of readers.
  static constexpr int64_t kMaxFooterBytes = int64_t{16} << 20;

  // `footers` are those of the planned files that were read before, or null; or there are
  // none. Others are kept up to `max_footer_bytes`.
  explicit ParquetFiles(std::vector<PlannedFile> planned,
                        std::vector<std::shared_ptr<const ParsedFooter>> footers = {},
                        int64_t max_footer_bytes = kMaxFooterBytes);

  std::shared_ptr<const ParquetFile> Open(int64_t file);
  // Opens a file in a store for one reader.
  std::shared_ptr<const ParquetFile> OpenRemote(
      int64_t file, const std::shared_ptr<RemoteReads>& reads);
  // Closes files that no reader uses at the moment.
  void Close();
  // A reader begins and ends to use the files. The end of the last one closes them: a
  // file that another still needs may have been removed since it was opened.
  void BeginReader();
  void EndReader();
  const std::string& path(int64_t file) const {
    return planned_[static_cast<size_t>(file)].path;
  }
  // True if keys were given for any of the files.
  bool have_keys() const;
  bool is_remote(int64_t file) const {
    return planned_[static_cast<size_t>(file)].remote != nullptr;
  }
  bool HasFooter(int64_t file);
  // The object of a file in a store.
  const std::shared_ptr<const RemoteObject>& remote(int64_t file) const {
    return planned_[static_cast<size_t>(file)].remote;
  }
  // Brings the bytes of files in stores; null if there are none.
  std::shared_ptr<Fetcher> fetcher() const;
  std::shared_ptr<CachedFetcher> cached() const;
  int64_t num_files() const { return static_cast<int64_t>(planned_.size()); }

 private:
  struct OpenFile {
    int64_t file;
    std::shared_ptr<const ParquetFile> opened;
  };

  void KeepFooter(int64_t file, const std::shared_ptr<const ParsedFooter>& footer);

  const std::vector<PlannedFile> planned_;
  const int64_t max_footer_bytes_;
  std::mutex mutex_;
  std::list<OpenFile> open_;  // guarded by mutex_; most recently used first
  // By file. Kept footers stay: if passes over more files than fit replaced the oldest,
  // every footer would be gone when it is needed again. Guarded by mutex_.
  std::unordered_map<int64_t, std::shared_ptr<const ParsedFooter>> footers_;
  int64_t footer_bytes_ = 0;  // guarded by mutex_
  int64_t num_readers_ = 0;   // guarded by mutex_
  KnownSchemas schemas_;
};

}  // namespace torchparquet
