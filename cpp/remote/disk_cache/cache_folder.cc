#include "remote/disk_cache/cache_folder.h"

#include <dirent.h>
#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <memory>
#include <string_view>
#include <thread>

namespace torchparquet {
namespace {

constexpr char kMarker[] = "torchparquet-blocks";
constexpr char kEvictionLock[] = "eviction";
constexpr char kTag[] = "CACHEDIR.TAG";
constexpr std::string_view kMarkerBegin = "torchparquet blocks, format ";
constexpr std::string_view kMarkerText = "torchparquet blocks, format 1\n";
// Programs that make backups leave out a folder with this tag. Source: the Cache
// Directory Tagging Specification.
constexpr std::string_view kTagText =
    "Signature: 8a477f597d28d172789f06886806bc55\n"
    "# Blocks of remote files, kept by torchparquet. They can be removed at any time.\n";

constexpr auto kPatience = std::chrono::seconds(1);

// Returns false with errno.
bool TryLock(int descriptor) {
  while (flock(descriptor, LOCK_EX | LOCK_NB) != 0) {
    if (errno != EINTR) return false;
  }
  return true;
}

// Returns false with errno, which is EWOULDBLOCK if another kept the lock. Tries again
// and again, since flock(2) itself may wait for ever.
bool LockPatiently(int descriptor) {
  const auto deadline = std::chrono::steady_clock::now() + kPatience;
  auto pause = std::chrono::microseconds(50);
  while (!TryLock(descriptor)) {
    if (errno != EWOULDBLOCK || std::chrono::steady_clock::now() > deadline) return false;
    std::this_thread::sleep_for(pause);
    pause = std::min(2 * pause, std::chrono::microseconds(5'000));
    errno = EWOULDBLOCK;
  }
  return true;
}

// Writes a short text at once. Returns false with errno.
bool WriteText(int descriptor, std::string_view text) {
  const ssize_t count = pwrite(descriptor, text.data(), text.size(), 0);
  if (count >= 0 && count != static_cast<ssize_t>(text.size())) errno = ENOSPC;
  return count == static_cast<ssize_t>(text.size());
}

// Throws Error(kInvalidArgument) if another user could put blocks there: data of their
// making would be read as the store's.
void CheckTrusted(int folder, const std::string& path) {
  struct stat status{};
  if (fstat(folder, &status) != 0) {
    throw Error(ErrorKind::kIo,
                std::string("cannot stat the cache folder: ") + std::strerror(errno),
                {.path = path});
  }
  const uid_t user = geteuid();
  if (status.st_uid != user && status.st_uid != 0) {
    throw Error(
        ErrorKind::kInvalidArgument,
        Text("the cache folder belongs to another user, who could change what is read "
             "from it: name a folder of your own: it is of user ",
             status.st_uid, ", this process of user ", user),
        {.path = path});
  }
  if ((status.st_mode & S_IWOTH) != 0) {
    throw Error(ErrorKind::kInvalidArgument,
                "every user may write to the cache folder, and could change what is read "
                "from it: run 'chmod o-w' on it, or name another folder",
                {.path = path});
  }
}

// Makes the folders around one, as far as they do not exist. What fails is told by what
// follows. Not std::filesystem, which the C++ libraries of older systems lack.
void MakeFoldersAround(const std::string& path) {
  const size_t last = path.find_last_not_of('/');
  for (size_t end = path.find('/', 1); end < last; end = path.find('/', end + 1)) {
    mkdir(path.substr(0, end).c_str(), 0777);
  }
}

Error NotOurs(const std::string& path) {
  return Error(ErrorKind::kInvalidArgument,
               "the cache folder has other files: name an empty or a new one",
               {.path = path});
}

}  // namespace

FileDescriptor::~FileDescriptor() {
  if (number_ >= 0) close(number_);
}

FileLock::~FileLock() {
  // Closing is not enough where a child was forked while the lock was held.
  if (file_) flock(file_.get(), LOCK_UN);
}

CacheFolder::CacheFolder(std::string path) : path_(std::move(path)) {
  if (path_.empty()) throw InvalidArgument("the cache folder has no name");
  MakeFoldersAround(path_);
  // Nobody else reads data that may be private, unless the user made the folder.
  if (mkdir(path_.c_str(), 0700) != 0 && errno != EEXIST) {
    throw SystemError("cannot make the cache folder", errno);
  }
  folder_ = FileDescriptor(open(path_.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (!folder_) throw SystemError("cannot open the cache folder", errno);
  CheckTrusted(folder_.get(), path_);
  Mark();
}

void CacheFolder::Mark() {
  FileDescriptor marker = OpenFile(folder_, kMarker, O_RDWR);
  if (!marker) {
    // The marker is what another process makes first.
    const auto names = Names(folder_);
    if (!names.empty() && std::ranges::find(names, kMarker) == names.end()) {
      throw NotOurs(path_);
    }
    marker = MakeFile(kMarker);
  }
  if (IsValid(marker)) return;
  if (!LockPatiently(marker.get())) throw SystemError("cannot lock the cache", errno);
  const FileLock lock(std::move(marker));
  if (IsValid(lock.file())) return;
  // An empty marker is the first of two files of a folder in the making.
  const bool is_new = std::ranges::all_of(Names(folder_), [](const std::string& name) {
    return name == kMarker || name == kTag;
  });
  if (!is_new) throw NotOurs(path_);
  const FileDescriptor tag = MakeFile(kTag);
  const int file = lock.file().get();
  if (!WriteText(tag.get(), kTagText) || !WriteText(file, kMarkerText) ||
      fsync(file) != 0) {
    throw SystemError("cannot mark the cache folder", errno);
  }
}

bool CacheFolder::IsValid(const FileDescriptor& marker) const {
  std::array<char, 64> text{};
  const ssize_t count = pread(marker.get(), text.data(), text.size(), 0);
  if (count < 0) throw SystemError("cannot read the marker of the cache", errno);
  const std::string_view found(text.data(), static_cast<size_t>(count));
  if (found == kMarkerText) return true;
  if (found.empty()) return false;
  if (found.starts_with(kMarkerBegin)) {
    throw Error(ErrorKind::kInvalidArgument,
                "the cache folder has another format than this version of torchparquet "
                "makes: name another folder or remove this one: it has '" +
                    Printable(found.substr(0, found.find('\n'))) + "'",
                {.path = path_});
  }
  throw NotOurs(path_);
}

FileDescriptor CacheFolder::OpenSubfolder(const std::string& name) const {
  FileDescriptor folder(openat(folder_.get(), name.c_str(),
                               O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC));
  if (!folder && errno != ENOENT) {
    throw SystemError("cannot open '" + name + "' of the cache", errno);
  }
  return folder;
}

FileDescriptor CacheFolder::MakeSubfolder(const std::string& name) const {
  FileDescriptor folder = OpenSubfolder(name);
  if (folder) return folder;
  if (mkdirat(folder_.get(), name.c_str(), 0775) != 0 && errno != EEXIST) {
    throw SystemError("cannot make '" + name + "' in the cache", errno);
  }
  folder = OpenSubfolder(name);
  if (!folder) throw SystemError("cannot open '" + name + "' of the cache", ENOENT);
  return folder;
}

FileDescriptor CacheFolder::OpenFile(const FileDescriptor& folder,
                                     const std::string& name, int flags) const {
  // O_NONBLOCK: opening a FIFO must not wait. It has no effect on regular files.
  FileDescriptor file(openat(folder.get(), name.c_str(),
                             flags | O_NOFOLLOW | O_CLOEXEC | O_NONBLOCK, 0664));
  if (!file && errno == ENOENT) return file;
  if (!file) throw SystemError("cannot open '" + name + "' of the cache", errno);
  struct stat status{};
  if (fstat(file.get(), &status) != 0) {
    throw SystemError("cannot stat '" + name + "' of the cache", errno);
  }
  // A second name would let writes reach a file elsewhere.
  const bool is_written = (flags & O_ACCMODE) != O_RDONLY;
  if (!S_ISREG(status.st_mode) || (is_written && status.st_nlink > 1)) {
    throw Error(ErrorKind::kIo,
                "'" + name + "' of the cache is not a regular file with one name",
                {.path = path_});
  }
  return file;
}

FileDescriptor CacheFolder::MakeFile(const std::string& name) const {
  FileDescriptor file = OpenFile(folder_, name, O_RDWR | O_CREAT);
  if (!file) throw SystemError("cannot make '" + name + "' in the cache", ENOENT);
  return file;
}

std::vector<std::string> CacheFolder::Names(const FileDescriptor& folder) const {
  // A description of its own, since listing moves its position.
  const int descriptor = openat(folder.get(), ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  const auto close_folder = [](DIR* opened) { closedir(opened); };
  const std::unique_ptr<DIR, decltype(close_folder)> opened(
      descriptor < 0 ? nullptr : fdopendir(descriptor), close_folder);
  if (!opened) {
    const int code = errno;
    if (descriptor >= 0) close(descriptor);
    throw SystemError("cannot list the cache", code);
  }
  std::vector<std::string> names;
  for (;;) {
    errno = 0;
    const dirent* entry = readdir(opened.get());
    if (entry == nullptr && errno != 0) throw SystemError("cannot list the cache", errno);
    if (entry == nullptr) return names;
    const std::string_view name(entry->d_name);
    if (name != "." && name != "..") names.emplace_back(name);
  }
}

void CacheFolder::CheckMarked() const {
  if (faccessat(folder_.get(), kMarker, F_OK, AT_SYMLINK_NOFOLLOW) == 0) return;
  throw Error(ErrorKind::kIo, "the cache folder was removed, or its marker",
              {.path = path_});
}

std::optional<FileLock> CacheFolder::TryLockEviction() const {
  FileDescriptor file = MakeFile(kEvictionLock);
  if (TryLock(file.get())) return FileLock(std::move(file));
  if (errno == EWOULDBLOCK) return std::nullopt;
  throw SystemError("cannot lock the cache", errno);
}

Error CacheFolder::SystemError(const std::string& action, int code) const {
  return Error(ErrorKind::kIo, action + ": " + std::strerror(code), {.path = path_});
}

}  // namespace torchparquet
