#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
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
// not in each epoch. Thread-safe: no lock but that of one local file is held while files
// are opened. Do not use it in a forked child, where a thread that no longer exists may
// hold a lock.
class ParquetFiles {
 public:
  static constexpr size_t kMaxOpenFiles = 64;
  // The limit on the memory of kept footers, in addition to the memory of readers.
  static constexpr int64_t kMaxFooterBytes = int64_t{16} << 20;

  // `footers[i]` is the footer of file i if it was read before, or null; may be empty.
  // Footers that are read later are kept up to `max_footer_bytes`.
  explicit ParquetFiles(std::vector<PlannedFile> planned,
                        std::vector<std::shared_ptr<const ParsedFooter>> footers = {},
                        int64_t max_footer_bytes = kMaxFooterBytes);

  // Opens a file, or returns it if it is open. Threads that want the same local file wait
  // for the one that opens it. A file in a store is read through `blocks`, and open for
  // them alone. Threads do not wait for each other then: the one that brings bytes opens
  // files too.
  std::shared_ptr<const ParquetFile> Open(
      int64_t file, const std::shared_ptr<RemoteBlocks>& blocks = nullptr);
  // Closes the files that are open for `blocks`, and are used by nobody at the moment.
  void Close(const RemoteBlocks* blocks);
  // A reader begins and ends to use the files. The end of the last one closes the local
  // ones: a file that another still needs may have been removed since it was opened.
  void BeginReader();
  void EndReader();
  const std::string& path(int64_t file) const { return planned(file).path; }
  // True if keys were given for any of the files.
  bool have_keys() const { return have_keys_; }
  bool is_remote(int64_t file) const { return planned(file).remote != nullptr; }
  bool HasFooter(int64_t file);
  // The object of a file in a store.
  const std::shared_ptr<const RemoteObject>& remote(int64_t file) const {
    return planned(file).remote;
  }
  // Brings the bytes of files in stores; null if there are none.
  const std::shared_ptr<Fetcher>& fetcher() const { return fetcher_; }
  const std::shared_ptr<CachedFetcher>& cached() const { return cached_; }
  int64_t num_files() const { return static_cast<int64_t>(planned_.size()); }

 private:
  struct OpenFile {
    std::mutex mutex;  // of a local file: held while it is opened
    std::shared_ptr<const ParquetFile> opened;  // guarded by `mutex`; null before
    int64_t last_use = 0;                       // guarded by that of ParquetFiles
  };
  // Null for a local file, and its number.
  using Key = std::pair<const RemoteBlocks*, int64_t>;

  const PlannedFile& planned(int64_t file) const {
    return planned_[static_cast<size_t>(file)];
  }
  std::shared_ptr<OpenFile> Use(const Key& key);
  void CloseAll(const RemoteBlocks* blocks);
  std::shared_ptr<const ParsedFooter> KeptFooter(int64_t file);
  void KeepFooter(int64_t file, const std::shared_ptr<const ParsedFooter>& footer);

  const std::vector<PlannedFile> planned_;
  const int64_t max_footer_bytes_;
  std::shared_ptr<Fetcher> fetcher_;  // these three are set once
  std::shared_ptr<CachedFetcher> cached_;
  bool have_keys_ = false;
  std::mutex mutex_;  // guards all below
  std::map<Key, std::shared_ptr<OpenFile>> open_;
  int64_t num_uses_ = 0;
  // By file. Kept footers stay: if passes over more files than fit replaced the oldest,
  // every footer would be gone when it is needed again.
  std::unordered_map<int64_t, std::shared_ptr<const ParsedFooter>> footers_;
  int64_t footer_bytes_ = 0;
  int64_t num_readers_ = 0;
  KnownSchemas schemas_;  // has a lock of its own
};

// The files of a data set as one reader sees them: those in stores are read through its
// own blocks. Thread-safe.
class ReaderFiles {
 public:
  // `blocks` is null if no file is in a store.
  ReaderFiles(std::shared_ptr<ParquetFiles> files, std::shared_ptr<RemoteBlocks> blocks)
      : files_(std::move(files)), blocks_(std::move(blocks)) {}
  ~ReaderFiles() {
    if (blocks_ != nullptr) files_->Close(blocks_.get());
  }
  ReaderFiles(const ReaderFiles&) = delete;
  ReaderFiles& operator=(const ReaderFiles&) = delete;

  std::shared_ptr<const ParquetFile> Open(int64_t file) {
    return files_->Open(file, blocks_);
  }
  bool is_remote(int64_t file) const { return files_->is_remote(file); }
  bool has_footer(int64_t file) const { return files_->HasFooter(file); }
  const std::shared_ptr<const RemoteObject>& remote(int64_t file) const {
    return files_->remote(file);
  }
  const std::string& path(int64_t file) const { return files_->path(file); }

 private:
  const std::shared_ptr<ParquetFiles> files_;
  const std::shared_ptr<RemoteBlocks> blocks_;
};

}  // namespace torchparquet
