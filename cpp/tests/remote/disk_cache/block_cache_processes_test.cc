#include <doctest/doctest.h>
#include <sched.h>
#include <sys/mount.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <csignal>
#include <filesystem>
#include <functional>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "caught.h"
#include "remote/disk_cache/block_cache.h"
#include "remote/disk_cache/block_store.h"
#include "remote/disk_cache/cache_setting.h"

namespace torchparquet {
namespace {

using testing::Age;
using testing::Bytes;
using testing::BytesOf;
using testing::DiskBytes;
using testing::Draws;
using testing::KeyOf;
using testing::TemporaryFolder;

constexpr int64_t kMiB = int64_t{1} << 20;
constexpr int64_t kBlockBytes = 60'000;
constexpr int64_t kBlockDiskBytes = int64_t{60} << 10;
constexpr int64_t kNumBlocks = 40;
constexpr int64_t kLimitBytes = 20 * kBlockDiskBytes;

// The bytes of a block. Made once, before children are forked.
const Bytes& BlockBytes(int64_t number) {
  static const std::vector<Bytes> blocks = [] {
    std::vector<Bytes> made;
    for (int64_t i = 0; i < kNumBlocks; ++i) made.push_back(BytesOf(i, kBlockBytes));
    return made;
  }();
  return blocks[static_cast<size_t>(number)];
}

// A child process that ends with what `body` returns.
class Child {
 public:
  explicit Child(const std::function<int()>& body) : pid_(fork()) {
    REQUIRE(pid_ >= 0);
    if (pid_ != 0) return;
    int status = 99;
    try {
      status = body();
    } catch (...) {
      status = 98;
    }
    _exit(status);
  }
  Child(Child&& other) noexcept : pid_(std::exchange(other.pid_, -1)) {}
  ~Child() {
    if (pid_ > 0) Kill();
  }

  void Kill() {
    kill(pid_, SIGKILL);
    Await();
  }
  pid_t pid() const { return pid_; }
  // The exit status; -1 for a child that was killed.
  int Await() {
    int status = 0;
    REQUIRE(waitpid(std::exchange(pid_, -1), &status, 0) > 0);
    return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
  }

 private:
  pid_t pid_;
};

// Two ends for one byte between a parent and its children.
class Pipe {
 public:
  Pipe() { REQUIRE(pipe(ends_) == 0); }
  ~Pipe() {
    close(ends_[0]);
    close(ends_[1]);
  }
  Pipe(const Pipe&) = delete;
  Pipe& operator=(const Pipe&) = delete;
  void Send() const { static_cast<void>(!write(ends_[1], "x", 1)); }
  void Await() const {
    char byte = 0;
    static_cast<void>(!read(ends_[0], &byte, 1));
  }

 private:
  int ends_[2] = {-1, -1};
};

// Reads and writes drawn blocks. Returns 0 if all that was read was right.
int UseBlocks(BlockCache& cache, uint64_t seed, int num_steps) {
  Draws draws(seed);
  Bytes out(kBlockBytes);
  for (int step = 0; step < num_steps; ++step) {
    const int64_t number = draws.Below(kNumBlocks);
    const BlockKey key = KeyOf(number, kBlockBytes);
    if (!cache.Read(key, out.data())) {
      cache.Write(key, BlockBytes(number));
    } else if (out != BlockBytes(number)) {
      return 1;
    }
    // Written again, though it is there.
    if (draws.OneIn(4)) cache.Write(key, BlockBytes(number));
  }
  if (!cache.failure().empty()) return 2;
  return cache.stats().num_damaged == 0 ? 0 : 3;
}

// Checks that each block file is whole.
void CheckConsistent(const std::filesystem::path& path) {
  const CacheFolder folder(path);
  std::vector<BlockDigest> digests;
  for (int64_t i = 0; i < kNumBlocks; ++i) {
    digests.push_back(DigestOf(KeyOf(i, kBlockBytes)));
  }
  Bytes out(kBlockBytes);
  for (const StoredBlock& block : ListBlocks(folder)) {
    const auto place = std::ranges::find(digests, block.digest);
    REQUIRE(place != digests.end());
    const FileDescriptor file = OpenBlock(folder, block.digest);
    REQUIRE(file);
    REQUIRE(ReadBlock(file.get(), KeyOf(place - digests.begin(), kBlockBytes),
                      out.data()) == BlockState::kSound);
    REQUIRE(out == BlockBytes(place - digests.begin()));
  }
}

bool HasNewBlocks(const std::filesystem::path& cache) {
  const auto folder = cache / "new";
  return std::filesystem::exists(folder) && !std::filesystem::is_empty(folder);
}

TEST_CASE("processes write, read and evict together") {
  constexpr int kEvicted = 4;  // the status of a child that has
  const TemporaryFolder temporary;
  std::vector<Child> children;
  for (uint64_t seed = 0; seed < 4; ++seed) {
    children.emplace_back([&, seed] {
      BlockCache cache(temporary.cache(), kLimitBytes);
      const int status = UseBlocks(cache, seed, 300);
      return status == 0 && cache.stats().num_evicted > 0 ? kEvicted : status;
    });
  }
  // A fast one may leave eviction to others.
  int num_evicting = 0;
  for (Child& child : children) {
    const int status = child.Await();
    CHECK((status == 0 || status == kEvicted));
    num_evicting += status == kEvicted;
  }
  CHECK(num_evicting > 0);
  CheckConsistent(temporary.cache());
  // Each process may exceed the limit by a tenth before it lists the blocks again.
  CHECK(DiskBytes(temporary.cache()) <= kLimitBytes + 4 * (kLimitBytes / 10));
  const BlockCache cache(temporary.cache(), kLimitBytes);
  CHECK(DiskBytes(temporary.cache()) <= kLimitBytes);
  CHECK(DiskBytes(temporary.cache()) > kLimitBytes / 2);
  CHECK_FALSE(HasNewBlocks(temporary.cache()));
}

TEST_CASE("processes that begin at once make one folder") {
  for (int round = 0; round < 30; ++round) {
    const TemporaryFolder temporary;
    const Pipe start;
    std::vector<Child> children;
    for (int i = 0; i < 4; ++i) {
      children.emplace_back([&] {
        start.Await();
        BlockCache cache(temporary.cache(), kLimitBytes);
        return UseBlocks(cache, 0, 2);
      });
    }
    for (int i = 0; i < 4; ++i) start.Send();
    for (Child& child : children) REQUIRE(child.Await() == 0);
    CheckConsistent(temporary.cache());
  }
}

TEST_CASE("nothing but whole blocks is left by processes that are killed") {
  const TemporaryFolder temporary;
  Draws draws(11);
  BlockBytes(0);
  int num_in_the_middle = 0;
  for (int round = 0; round < 100; ++round) {
    const Pipe begun;
    std::vector<Child> children;
    for (uint64_t i = 0; i < 2; ++i) {
      children.emplace_back([&, i] {
        BlockCache cache(temporary.cache(), kLimitBytes);
        begun.Send();
        for (uint64_t seed = i;; seed += 2) {
          const int status = UseBlocks(cache, seed, 1000);
          if (status != 0) return status;
        }
      });
    }
    begun.Await();
    begun.Await();
    // They are killed anywhere.
    std::this_thread::sleep_for(std::chrono::microseconds(draws.Between(0, 15'000)));
    for (Child& child : children) {
      kill(child.pid(), SIGKILL);
      // -1: no wrong byte was read before.
      REQUIRE(child.Await() == -1);
    }
    num_in_the_middle += HasNewBlocks(temporary.cache()) ? 1 : 0;
    CheckConsistent(temporary.cache());
  }
  CHECK(num_in_the_middle > 0);
  for (const auto& entry :
       std::filesystem::directory_iterator(temporary.cache() / "new")) {
    Age(entry.path(), 90);
  }
  BlockCache cache(temporary.cache(), kLimitBytes);
  CHECK_FALSE(HasNewBlocks(temporary.cache()));
  CHECK(UseBlocks(cache, 0, 200) == 0);
  CHECK(DiskBytes(temporary.cache()) <= kLimitBytes + kLimitBytes / 10);
  CheckConsistent(temporary.cache());
}

TEST_CASE("a process that is killed while it evicts blocks nobody") {
  const TemporaryFolder temporary;
  BlockCache cache(temporary.cache(), kLimitBytes);
  const Pipe locked;
  Child child([&] {
    const auto turn = CacheFolder(temporary.cache()).TryLockEviction();
    locked.Send();
    pause();
    return 0;
  });
  locked.Await();
  child.Kill();
  for (int64_t i = 0; i < kNumBlocks; ++i) {
    cache.Write(KeyOf(i, kBlockBytes), BlockBytes(i));
  }
  CHECK(cache.stats().num_skipped == 0);
  CHECK(cache.stats().num_evicted > 0);
  CheckConsistent(temporary.cache());
}

TEST_CASE("a child that was forked while the lock was held blocks nobody") {
  const TemporaryFolder temporary;
  BlockCache cache(temporary.cache(), kLimitBytes);
  const CacheFolder folder(temporary.cache());
  std::optional<FileLock> lock = folder.TryLockEviction();
  REQUIRE(lock);
  const Pipe tried;
  const Pipe unlocked;
  Child child([&] {
    // The parent's lock is not the child's, though the child has its file.
    if (folder.TryLockEviction()) return 1;
    tried.Send();
    unlocked.Await();
    const int status = UseBlocks(cache, 1, 60);
    return status == 0 && cache.stats().num_evicted == 0 ? 2 : status;
  });
  Child idle([] {
    pause();
    return 0;
  });
  tried.Await();
  lock.reset();
  unlocked.Send();
  // The child evicts all that is too much, since nobody else does.
  CHECK(child.Await() == 0);
  CHECK(UseBlocks(cache, 2, 20) == 0);
  CheckConsistent(temporary.cache());
}

TEST_CASE("a full disk ends the cache with one message, and leaves what is there") {
  const TemporaryFolder temporary;
  constexpr int kNoMount = 77;
  Child child([&] {
    // Only this process sees the disk.
    if (unshare(CLONE_NEWNS) != 0 && unshare(CLONE_NEWUSER | CLONE_NEWNS) != 0) {
      return kNoMount;
    }
    mount("none", "/", nullptr, MS_REC | MS_PRIVATE, nullptr);
    if (mount("cache", temporary.path().c_str(), "tmpfs", 0, "size=512k") != 0) {
      return kNoMount;
    }
    BlockCache cache(temporary.cache(), kLimitBytes);
    int num_kept = 0;
    Bytes out(kBlockBytes);
    for (int64_t i = 0; i < 20; ++i) {
      cache.Write(KeyOf(i, kBlockBytes), BlockBytes(i));
      if (!cache.Read(KeyOf(i, kBlockBytes), out.data())) continue;
      if (out != BlockBytes(i)) return 1;
      ++num_kept;
    }
    if (num_kept < 5 || num_kept > 8) return 2;
    if (cache.failure().find("No space left on device") == std::string::npos) return 3;
    if (HasNewBlocks(temporary.cache())) return 4;
    CheckConsistent(temporary.cache());
    return cache.stats().num_skipped == 20 - num_kept ? 0 : 5;
  });
  const int status = child.Await();
  if (status == kNoMount) {
    MESSAGE("no disk can be mounted here");
  } else {
    CHECK(status == 0);
  }
}

}  // namespace
}  // namespace torchparquet
