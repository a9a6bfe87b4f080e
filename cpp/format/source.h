#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <utility>

#include "base/byte_range.h"
#include "bridge/byte_source.h"

namespace torchparquet {

// The identity of a file at the time of planning. A file that differs later has been
// replaced or written to.
struct FileIdentity {
  int64_t num_bytes = -1;  // -1: not known, not checked
  int64_t mtime_ns = -1;
  int64_t inode = -1;
  // The time of the last change of content or attributes, which no user can set back. It
  // is found when a file is opened and never expected, since linking or moving a file
  // changes it too.
  int64_t ctime_ns = -1;

  bool operator==(const FileIdentity&) const = default;
};

// The bytes of one file, for positional reads. Thread-safe after construction.
class Source : public ByteSource {
 public:
  Source(const Source&) = delete;
  Source& operator=(const Source&) = delete;

  // ReadAt throws Error(kCorruptFile) if the file ends early, Error(kChanged) if it is no
  // longer the expected one, and Error(kIo) if the system reports a failure.

  // ReadAt for footers and indexes. Blocks of column chunks that a reader holds stay so.
  virtual void LookAt(int64_t offset, int64_t num_bytes, uint8_t* out) const {
    ReadAt(offset, num_bytes, out);
  }

  // The bytes of a range where they are in memory already, with kPaddingBytes after them
  // that nobody writes, or null: then ReadAt copies them. They stay while the pointer
  // lives. Waits and throws as ReadAt does.
  virtual std::shared_ptr<const uint8_t> Borrow(const ByteRange& range) const {
    static_cast<void>(range);
    return nullptr;
  }

  // The name in messages.
  const std::string& path() const { return path_; }
  const FileIdentity& identity() const { return identity_; }
  int64_t num_bytes() const { return identity_.num_bytes; }
  // How much of the end to read at once for a footer.
  virtual int64_t footer_read_bytes() const { return int64_t{16} << 10; }

 protected:
  explicit Source(std::string path) : path_(std::move(path)) {}
  // Sets the identity that was found. Throws Error(kChanged) if it is not the expected
  // one.
  void Identify(const FileIdentity& found, const FileIdentity& expected);
  static void CheckIdentity(const FileIdentity& found, const FileIdentity& expected);

 private:
  std::string path_;
  FileIdentity identity_;
};

// A file of the local file system. Reads are pread, never mmap: truncating a mapped file
// kills the program.
class LocalFile : public Source {
 public:
  // Throws Error(kFileNotFound) or Error(kIo) if it cannot be opened, and
  // Error(kChanged) if it is not the file that `expected` describes.
  LocalFile(std::string path, const FileIdentity& expected);
  ~LocalFile() override;

  void ReadAt(int64_t offset, int64_t num_bytes, uint8_t* out) const override;

 private:
  const FileIdentity expected_;
  int descriptor_ = -1;
};

// A file's bytes in memory. Their owner keeps them during the life of this object and
// does not write to them. Reads copy, as reads of a file do: the checked bytes are the
// used bytes, and kernels may load beyond the end of a view.
class MemoryFile : public Source {
 public:
  // `name` stands for the path. Throws Error(kChanged) if `content` is not what
  // `expected` describes.
  MemoryFile(std::string name, std::span<const uint8_t> content,
             const FileIdentity& expected);

  void ReadAt(int64_t offset, int64_t num_bytes, uint8_t* out) const override;

 private:
  std::span<const uint8_t> content_;
};

}  // namespace torchparquet
