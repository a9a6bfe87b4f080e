#pragma once

#include <cstddef>
#include <cstdint>
#include <list>
#include <memory>
#include <mutex>
#include <string>

#include "files/parquet_file.h"
#include "files/parquet_files.h"
#include "remote/blocks/remote_reads.h"

namespace torchparquet {

// The files of a data set as one reader sees them: those in stores are read through its
// own blocks. Thread-safe.
class ReaderFiles {
 public:
  // `reads` is null if no file is in a store.
  ReaderFiles(std::shared_ptr<ParquetFiles> files, std::shared_ptr<RemoteReads> reads)
      : files_(std::move(files)), reads_(std::move(reads)) {}

  std::shared_ptr<const ParquetFile> Open(int64_t file);
  bool is_remote(int64_t file) const { return files_->is_remote(file); }
  bool has_footer(int64_t file) const { return files_->HasFooter(file); }
  const std::shared_ptr<const RemoteObject>& remote(int64_t file) const {
    return files_->remote(file);
  }
  const std::string& path(int64_t file) const { return files_->path(file); }

 private:
  static constexpr size_t kMaxOpenFiles = 64;
  struct OpenFile {
    int64_t file;
    std::shared_ptr<const ParquetFile> opened;
  };

  std::shared_ptr<const ParquetFile> Find(int64_t file);

  const std::shared_ptr<ParquetFiles> files_;
  const std::shared_ptr<RemoteReads> reads_;
  std::mutex mutex_;
  std::list<OpenFile> open_;  // in stores; guarded by mutex_; most recently used first
};

}  // namespace torchparquet
