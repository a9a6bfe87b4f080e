#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <utility>

namespace torchparquet {

// What identified a file when it was planned. A file that differs from it when it
// is read has been replaced or written to since.
struct FileIdentity {
  int64_t num_bytes = -1;  // -1: not known, not checked
  int64_t mtime_ns = -1;
  int64_t inode = -1;
  // Of the last change of content or attributes, which no user can set back. Found when a
  // file is opened, and never expected: it changes where a file is linked or moved too.
  int64_t ctime_ns = -1;

  bool operator==(const FileIdentity&) const = default;
};

// The bytes of one file, for positional reads. Thread-safe after construction.
class Source {
 public:
  virtual ~Source() = default;
  Source(const Source&) = delete;
  Source& operator=(const Source&) = delete;

  // Reads exactly `num_bytes` at `offset`. Throws Error(kCorruptFile) at an early end
  // of the file or when it is no longer the one expected, Error(kIo) when the system
  // reports a failure.
  virtual void ReadAt(int64_t offset, int64_t num_bytes, uint8_t* out) const = 0;

  // What messages call it.
  const std::string& path() const { return path_; }
  const FileIdentity& identity() const { return identity_; }
  int64_t num_bytes() const { return identity_.num_bytes; }

 protected:
  explicit Source(std::string path) : path_(std::move(path)) {}
  // Takes what was found for the file's identity. Throws Error(kCorruptFile) when it
  // is not the one expected.
  void Identify(const FileIdentity& found, const FileIdentity& expected);
  static void CheckIdentity(const FileIdentity& found, const FileIdentity& expected);

 private:
  std::string path_;
  FileIdentity identity_;
};

// A file of the local file system. Reads are pread, never mmap: a mapped file that is
// truncated kills the program.
class LocalFile : public Source {
 public:
  // Throws Error(kFileNotFound) or Error(kIo) when it cannot be opened, and
  // Error(kCorruptFile) when it is not the file that `expected` describes.
  LocalFile(std::string path, const FileIdentity& expected);
  ~LocalFile() override;

  void ReadAt(int64_t offset, int64_t num_bytes, uint8_t* out) const override;

 private:
  const FileIdentity expected_;
  int descriptor_ = -1;
};

// A file's bytes in memory that somebody else owns, keeps for as long as this lives, and
// does not write to. Reads copy, as those of a file do: what is checked is what is used,
// and views have the room behind them that kernels need.
class MemoryFile : public Source {
 public:
  // `name` stands for the path. Throws Error(kCorruptFile) when `content` is not what
  // `expected` describes.
  MemoryFile(std::string name, std::span<const uint8_t> content,
             const FileIdentity& expected);

  void ReadAt(int64_t offset, int64_t num_bytes, uint8_t* out) const override;

 private:
  std::span<const uint8_t> content_;
};

}  // namespace torchparquet
