#include "remote/disk_cache/block_store.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <ctime>
#include <string_view>

#include "base/ceil_divide.h"
#include "base/errors.h"

namespace torchparquet {
namespace {

constexpr char kNewBlocks[] = "new";  // the subfolder of blocks that are being written
constexpr std::string_view kNewSuffix = ".new";
constexpr int64_t kPageBytes = 4096;
constexpr int64_t kSecond = 1'000'000'000;
constexpr int64_t kTouchSeconds = 60;
constexpr int64_t kStaleSeconds = 60;

int64_t Nanoseconds(const timespec& time) { return time.tv_sec * kSecond + time.tv_nsec; }

int64_t Now() {
  timespec now{};
  clock_gettime(CLOCK_REALTIME, &now);
  return Nanoseconds(now);
}

int64_t FileDiskBytes(int64_t file_bytes) {
  return CeilDivide(file_bytes, kPageBytes) * kPageBytes;
}

StoredBlock Describe(const BlockDigest& digest, const struct stat& status) {
  return {.digest = digest,
          .inode = status.st_ino,
          .used_at = Nanoseconds(status.st_mtim),
          .disk_bytes = FileDiskBytes(status.st_size)};
}

// A name that no other process or thread takes, nor one before.
std::string NewName() {
  static std::atomic<uint64_t> count = 0;
  return Text(getpid(), "-", Now(), "-", count.fetch_add(1, std::memory_order_relaxed),
              kNewSuffix);
}

bool IsNewName(std::string_view name) {
  return name.ends_with(kNewSuffix) &&
         name.substr(0, name.size() - kNewSuffix.size())
                 .find_first_not_of("0123456789-") == std::string_view::npos;
}

// A file whose writer lives is locked.
bool IsStale(const FileDescriptor& file) {
  struct stat status{};
  return fstat(file.get(), &status) == 0 &&
         Now() - Nanoseconds(status.st_mtim) > kStaleSeconds * kSecond &&
         BeginsAsBlock(file.get()) && flock(file.get(), LOCK_EX | LOCK_NB) == 0;
}

// As CacheFolder::OpenFile, but none for what is no file of ours.
FileDescriptor OpenIfOurs(const CacheFolder& folder, const FileDescriptor& subfolder,
                          const std::string& name) {
  try {
    return folder.OpenFile(subfolder, name, O_RDONLY);
  } catch (const Error&) {
    return FileDescriptor();
  }
}

}  // namespace

int64_t BlockDiskBytes(int64_t num_bytes) {
  return FileDiskBytes(kBlockHeaderBytes + num_bytes);
}

FileDescriptor OpenBlock(const CacheFolder& folder, const BlockDigest& digest) {
  const FileDescriptor subfolder = folder.OpenSubfolder(BlockSubfolder(digest));
  if (!subfolder) return FileDescriptor();
  return folder.OpenFile(subfolder, BlockName(digest), O_RDONLY);
}

StoredBlock DescribeBlock(const BlockDigest& digest, const FileDescriptor& file) {
  struct stat status{};
  fstat(file.get(), &status);  // fails for no open file
  return Describe(digest, status);
}

void TouchBlock(const FileDescriptor& file) {
  struct stat status{};
  if (fstat(file.get(), &status) != 0) return;
  const int64_t age = Now() - Nanoseconds(status.st_mtim);
  if (age >= 0 && age < kTouchSeconds * kSecond) return;
  const timespec times[] = {{.tv_sec = 0, .tv_nsec = UTIME_OMIT},
                            {.tv_sec = 0, .tv_nsec = UTIME_NOW}};
  // Fails for another user's block, which is then evicted by the time of its writing.
  static_cast<void>(futimens(file.get(), times));
}

std::vector<StoredBlock> ListBlocks(const CacheFolder& folder) {
  std::vector<StoredBlock> blocks;
  for (uint64_t number = 0; number < 256; ++number) {
    const std::string subfolder_name = BlockSubfolder({number << 56, 0});
    const FileDescriptor subfolder = folder.OpenSubfolder(subfolder_name);
    if (!subfolder) continue;
    for (const std::string& name : folder.Names(subfolder)) {
      const auto digest = ParseBlockName(name);
      struct stat status{};
      if (!digest || BlockSubfolder(*digest) != subfolder_name ||
          fstatat(subfolder.get(), name.c_str(), &status, AT_SYMLINK_NOFOLLOW) != 0 ||
          !S_ISREG(status.st_mode)) {
        continue;
      }
      blocks.push_back(Describe(*digest, status));
    }
  }
  return blocks;
}

int64_t RemoveBlock(const CacheFolder& folder, const StoredBlock& block) {
  const FileDescriptor subfolder = folder.OpenSubfolder(BlockSubfolder(block.digest));
  if (!subfolder) return 0;
  const std::string name = BlockName(block.digest);
  const FileDescriptor file = OpenIfOurs(folder, subfolder, name);
  if (!file) return 0;
  const StoredBlock found = DescribeBlock(block.digest, file);
  if (found.inode != block.inode || found.used_at != block.used_at) return 0;
  if (!BeginsAsBlock(file.get())) return 0;
  if (unlinkat(subfolder.get(), name.c_str(), 0) != 0) {
    if (errno == ENOENT) return 0;
    throw folder.SystemError("cannot remove a block of the cache", errno);
  }
  return found.disk_bytes;
}

void RemoveStaleBlocks(const CacheFolder& folder) {
  const FileDescriptor subfolder = folder.OpenSubfolder(kNewBlocks);
  if (!subfolder) return;
  for (const std::string& name : folder.Names(subfolder)) {
    if (!IsNewName(name)) continue;
    const FileDescriptor file = OpenIfOurs(folder, subfolder, name);
    if (file && IsStale(file)) unlinkat(subfolder.get(), name.c_str(), 0);
  }
}

NewBlock::NewBlock(const CacheFolder& folder)
    : folder_(folder),
      subfolder_(folder.MakeSubfolder(kNewBlocks)),
      name_(NewName()),
      file_(folder.OpenFile(subfolder_, name_, O_RDWR | O_CREAT | O_EXCL)) {
  if (!file_) throw folder.SystemError("cannot make a block of the cache", ENOENT);
  // Tells others that the writer lives.
  flock(file_.get(), LOCK_EX | LOCK_NB);
}

NewBlock::~NewBlock() {
  if (!is_published_) unlinkat(subfolder_.get(), name_.c_str(), 0);
}

void NewBlock::Write(const BlockKey& key, std::span<const uint8_t> bytes) {
  digest_ = DigestOf(key);
  const int code = WriteBlock(file_.get(), key, bytes);
  if (code != 0) throw folder_.SystemError("cannot write a block of the cache", code);
}

bool NewBlock::Publish() {
  const FileDescriptor target = folder_.MakeSubfolder(BlockSubfolder(digest_));
  const std::string name = BlockName(digest_);
  struct stat status{};
  if (fstatat(target.get(), name.c_str(), &status, AT_SYMLINK_NOFOLLOW) == 0) {
    const FileDescriptor replaced = OpenIfOurs(folder_, target, name);
    if (!replaced || !BeginsAsBlock(replaced.get())) return false;
  }
  if (renameat(subfolder_.get(), name_.c_str(), target.get(), name.c_str()) != 0) {
    throw folder_.SystemError("cannot put a block into the cache", errno);
  }
  is_published_ = true;
  return true;
}

}  // namespace torchparquet
