#include "format/source.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

#include "base/errors.h"

namespace torchparquet {
namespace {

// macOS refuses reads of 2 GiB and more, and Linux cuts them short.
constexpr int64_t kMaxReadBytes = int64_t{1} << 30;

Error SystemError(const std::string& action, int code) {
  const ErrorKind kind = code == ENOENT ? ErrorKind::kFileNotFound : ErrorKind::kIo;
  return Error(kind, action + ": " + std::strerror(code));
}

int64_t Nanoseconds(const timespec& time) {
  return time.tv_sec * 1'000'000'000 + time.tv_nsec;
}

// POSIX names them since 2008; macOS has kept its own names.
#if defined(__APPLE__)
const timespec& ModifiedAt(const struct stat& status) { return status.st_mtimespec; }
const timespec& ChangedAt(const struct stat& status) { return status.st_ctimespec; }
#else
const timespec& ModifiedAt(const struct stat& status) { return status.st_mtim; }
const timespec& ChangedAt(const struct stat& status) { return status.st_ctim; }
#endif

FileIdentity IdentityOf(int descriptor) {
  struct stat status{};
  if (fstat(descriptor, &status) != 0) throw SystemError("cannot stat", errno);
  if (!S_ISREG(status.st_mode)) throw Error(ErrorKind::kIo, "not a regular file");
  return {.num_bytes = status.st_size,
          .mtime_ns = Nanoseconds(ModifiedAt(status)),
          .inode = static_cast<int64_t>(status.st_ino),
          .ctime_ns = Nanoseconds(ChangedAt(status))};
}

Error ReadFailure(int64_t num_bytes, int64_t offset, int code) {
  return SystemError(Text("cannot read ", num_bytes, " bytes at offset ", offset), code);
}

Error EarlyEnd(int64_t missing_bytes, int64_t offset) {
  return CorruptFile("file ends ", missing_bytes, " bytes early at offset ", offset);
}

}  // namespace

void Source::CheckIdentity(const FileIdentity& found, const FileIdentity& expected) {
  const bool same_size = expected.num_bytes < 0 || found.num_bytes == expected.num_bytes;
  const bool same_time = expected.mtime_ns < 0 || found.mtime_ns == expected.mtime_ns;
  const bool same_inode = expected.inode < 0 || found.inode == expected.inode;
  if (same_size && same_time && same_inode) return;
  throw Error(ErrorKind::kChanged,
              Text("file changed since the data set was made; make the data set anew to "
                   "read it as it is: ",
                   found.num_bytes, " bytes now, ", expected.num_bytes, " then",
                   same_inode ? "" : ", and another file is in its place"));
}

void Source::Identify(const FileIdentity& found, const FileIdentity& expected) {
  CheckIdentity(found, expected);
  identity_ = found;
}

LocalFile::LocalFile(std::string path, const FileIdentity& expected)
    : Source(std::move(path)), expected_(expected) {
  // O_NONBLOCK: opening a FIFO must not wait for a writer. It has no effect on regular
  // files.
  do {
    descriptor_ = open(this->path().c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  } while (descriptor_ < 0 && errno == EINTR);
  if (descriptor_ < 0) {
    const int code = errno;
    const bool is_gone = code == ENOENT && expected.num_bytes >= 0;
    throw SystemError(is_gone
                          ? "file is gone since the data set was made; put it back, or "
                            "make the data set anew"
                          : "cannot open",
                      code);
  }
  try {
    Identify(IdentityOf(descriptor_), expected);
  } catch (...) {
    close(descriptor_);
    throw;
  }
}

LocalFile::~LocalFile() { close(descriptor_); }

void LocalFile::ReadAt(int64_t offset, int64_t num_bytes, uint8_t* out) const {
  while (num_bytes > 0) {
    const int64_t wanted = std::min(num_bytes, kMaxReadBytes);
    const ssize_t count = pread(descriptor_, out, static_cast<size_t>(wanted), offset);
    if (count < 0) {
      if (errno == EINTR) continue;
      throw ReadFailure(num_bytes, offset, errno);
    }
    if (count == 0) break;
    out += count;
    offset += count;
    num_bytes -= count;
  }
  // Data read before a write that this check sees may be mixed with the new data. For
  // reads of 128 KiB the check takes a hundredth of the time.
  if (expected_.num_bytes >= 0) CheckIdentity(IdentityOf(descriptor_), expected_);
  if (num_bytes > 0) throw EarlyEnd(num_bytes, offset);
}

MemoryFile::MemoryFile(std::string name, std::span<const uint8_t> content,
                       const FileIdentity& expected)
    : Source(std::move(name)), content_(content) {
  Identify({.num_bytes = static_cast<int64_t>(content.size())}, expected);
}

void MemoryFile::ReadAt(int64_t offset, int64_t num_bytes, uint8_t* out) const {
  if (offset < 0) throw ReadFailure(num_bytes, offset, EINVAL);
  const int64_t count = std::clamp<int64_t>(this->num_bytes() - offset, 0, num_bytes);
  std::copy_n(content_.data() + (count > 0 ? offset : 0), count, out);
  if (count < num_bytes) throw EarlyEnd(num_bytes - count, offset + count);
}

}  // namespace torchparquet
