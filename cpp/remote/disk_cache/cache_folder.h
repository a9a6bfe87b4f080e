#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/errors.h"

namespace torchparquet {

// An open file or folder, or none.
class FileDescriptor {
 public:
  explicit FileDescriptor(int number = -1) : number_(number) {}
  FileDescriptor(FileDescriptor&& other) noexcept
      : number_(std::exchange(other.number_, -1)) {}
  FileDescriptor& operator=(FileDescriptor&& other) noexcept {
    std::swap(number_, other.number_);
    return *this;
  }
  ~FileDescriptor();

  int get() const { return number_; }
  explicit operator bool() const { return number_ >= 0; }

 private:
  int number_;
};

// A lock of one file of the folder, among threads and processes. The system lets go of
// it when the process ends, however that happens.
class FileLock {
 public:
  explicit FileLock(FileDescriptor locked) : file_(std::move(locked)) {}
  FileLock(FileLock&&) = default;
  FileLock& operator=(FileLock&&) = default;
  ~FileLock();

  const FileDescriptor& file() const { return file_; }

 private:
  FileDescriptor file_;
};

// A folder for the cache alone, which a marker tells from all others. Files in it are
// opened relative to it and never through a symbolic link. Functions throw Error(kIo) for
// the system's failures, but for a file that is not there. Thread-safe, and safe in
// forked children.
class CacheFolder {
 public:
  // Makes the folder, or takes an empty or marked one. Throws Error(kInvalidArgument) for
  // any other folder, for a marker of another version, and for a folder that belongs to
  // another user than this process's and root, or that every user may write to.
  explicit CacheFolder(std::string path);

  const std::string& path() const { return path_; }

  // A subfolder; none if it is not there.
  FileDescriptor OpenSubfolder(const std::string& name) const;
  // As OpenSubfolder, and makes it.
  FileDescriptor MakeSubfolder(const std::string& name) const;
  // A regular file in `folder`, with the flags of open(2); none if it is not there.
  FileDescriptor OpenFile(const FileDescriptor& folder, const std::string& name,
                          int flags) const;
  // A regular file in the folder itself, made where it is not there, to read and write.
  FileDescriptor MakeFile(const std::string& name) const;
  std::vector<std::string> Names(const FileDescriptor& folder) const;

  // Throws Error(kIo) if somebody has removed the folder or its marker.
  void CheckMarked() const;
  // The lock of whoever evicts; none if another has it.
  std::optional<FileLock> TryLockEviction() const;

  Error SystemError(const std::string& action, int code) const;

 private:
  void Mark();
  // False for an empty marker. Throws Error(kInvalidArgument) for any but ours.
  bool IsValid(const FileDescriptor& marker) const;

  std::string path_;
  FileDescriptor folder_;
};

}  // namespace torchparquet
