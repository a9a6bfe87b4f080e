#pragma once

#include <cstdint>
#include <string>

namespace torchparquet {

// What identified a file when it was planned. A file that differs from it when it
// is read has been replaced or written to since.
struct FileIdentity {
  int64_t num_bytes = -1;  // -1: not known, not checked
  int64_t mtime_ns = -1;
};

// A local file open for positional reads. Reads are pread, never mmap: a mapped file
// that is truncated kills the program. Thread-safe after construction.
class LocalFile {
 public:
  // Throws Error(kFileNotFound) or Error(kIo) when it cannot be opened, and
  // Error(kCorruptFile) when it is not the file that `expected` describes.
  LocalFile(std::string path, const FileIdentity& expected);
  ~LocalFile();
  LocalFile(const LocalFile&) = delete;
  LocalFile& operator=(const LocalFile&) = delete;

  // Reads exactly `num_bytes` at `offset`. Throws Error(kCorruptFile) at an early end
  // of the file, Error(kIo) when the system reports a failure.
  void ReadAt(int64_t offset, int64_t num_bytes, uint8_t* out) const;

  const std::string& path() const { return path_; }
  const FileIdentity& identity() const { return identity_; }
  int64_t num_bytes() const { return identity_.num_bytes; }

 private:
  std::string path_;
  int descriptor_ = -1;
  FileIdentity identity_;
};

}  // namespace torchparquet
