#include "source.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <utility>

#include "errors.h"

namespace torchparquet {
namespace {

Error SystemError(const std::string& action, int code) {
  const ErrorKind kind = code == ENOENT ? ErrorKind::kFileNotFound : ErrorKind::kIo;
  return Error(kind, action + ": " + std::strerror(code));
}

FileIdentity Identify(int descriptor) {
  struct stat status{};
  if (fstat(descriptor, &status) != 0) throw SystemError("cannot stat", errno);
  if (!S_ISREG(status.st_mode)) throw Error(ErrorKind::kIo, "not a regular file");
  return {.num_bytes = status.st_size,
          .mtime_ns = status.st_mtim.tv_sec * 1'000'000'000 + status.st_mtim.tv_nsec};
}

void CheckIdentity(const FileIdentity& found, const FileIdentity& expected) {
  const bool same_size = expected.num_bytes < 0 || found.num_bytes == expected.num_bytes;
  const bool same_time = expected.mtime_ns < 0 || found.mtime_ns == expected.mtime_ns;
  if (same_size && same_time) return;
  throw CorruptFile(
      "file changed after it was planned: " + std::to_string(found.num_bytes) +
      " bytes now, " + std::to_string(expected.num_bytes) + " then");
}

}  // namespace

LocalFile::LocalFile(std::string path, const FileIdentity& expected)
    : path_(std::move(path)) {
  // O_NONBLOCK keeps the open of a FIFO from waiting for a writer; it means nothing
  // for the regular files that are accepted.
  descriptor_ = open(path_.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (descriptor_ < 0) throw SystemError("cannot open", errno);
  try {
    identity_ = Identify(descriptor_);
    CheckIdentity(identity_, expected);
  } catch (...) {
    close(descriptor_);
    throw;
  }
}

LocalFile::~LocalFile() { close(descriptor_); }

void LocalFile::ReadAt(int64_t offset, int64_t num_bytes, uint8_t* out) const {
  while (num_bytes > 0) {
    const ssize_t count = pread(descriptor_, out, static_cast<size_t>(num_bytes), offset);
    if (count < 0) {
      if (errno == EINTR) continue;
      throw SystemError("cannot read " + std::to_string(num_bytes) + " bytes at offset " +
                            std::to_string(offset),
                        errno);
    }
    if (count == 0) {
      throw CorruptFile("file ends " + std::to_string(num_bytes) +
                        " bytes early at offset " + std::to_string(offset));
    }
    out += count;
    offset += count;
    num_bytes -= count;
  }
}

}  // namespace torchparquet
