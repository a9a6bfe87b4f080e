#include "remote/disk_cache/block_cache.h"

#include <doctest/doctest.h>
#include <sys/resource.h>
#include <sys/stat.h>

#include <csignal>
#include <filesystem>
#include <map>
#include <string>
#include <thread>
#include <vector>

#include "caught.h"
#include "exact_buffer.h"
#include "remote/disk_cache/cache_setting.h"

namespace torchparquet {
namespace {

using testing::Age;
using testing::Bytes;
using testing::BytesOf;
using testing::Caught;
using testing::DiskBytes;
using testing::ExactBuffer;
using testing::KeyOf;
using testing::Mentions;
using testing::PathOf;
using testing::ReadFile;
using testing::TemporaryFolder;
using testing::Throws;
using testing::WriteFile;

constexpr int64_t kMiB = int64_t{1} << 20;
// Takes 100 KiB on disk.
constexpr int64_t kBlockBytes = 100'000;
constexpr int64_t kBlockDiskBytes = int64_t{100} << 10;

// A cache in a folder of its own, for blocks that KeyOf numbers.
class Setting {
 public:
  explicit Setting(int64_t limit_bytes = 100 * kMiB)
      : limit_bytes_(limit_bytes), cache_(folder_.cache(), limit_bytes) {}

  void Write(int64_t number, int64_t num_bytes = kBlockBytes) {
    cache_.Write(KeyOf(number, num_bytes), BytesOf(number, num_bytes));
  }
  // Checks what it reads.
  bool Has(int64_t number, int64_t num_bytes = kBlockBytes) {
    return Has(cache_, number, num_bytes);
  }
  bool HasAfterRestart(int64_t number) {
    BlockCache cache(folder_.cache(), limit_bytes_);
    return Has(cache, number, kBlockBytes);
  }
  std::filesystem::path Path(int64_t number, int64_t num_bytes = kBlockBytes) const {
    return PathOf(folder_.cache(), KeyOf(number, num_bytes));
  }

  BlockCache& cache() { return cache_; }
  int64_t disk_bytes() const { return DiskBytes(folder()); }
  std::filesystem::path folder() const { return folder_.cache(); }
  std::filesystem::path outside() const { return folder_.path(); }

 private:
  static bool Has(BlockCache& cache, int64_t number, int64_t num_bytes) {
    ExactBuffer<uint8_t> out(static_cast<size_t>(num_bytes));
    if (!cache.Read(KeyOf(number, num_bytes), out.data())) return false;
    REQUIRE(Bytes(out.data(), out.data() + num_bytes) == BytesOf(number, num_bytes));
    return true;
  }

  TemporaryFolder folder_;
  int64_t limit_bytes_;
  BlockCache cache_;
};

// All files in a folder with their content; links as what they lead to.
std::map<std::string, std::string> Contents(const std::filesystem::path& folder) {
  std::map<std::string, std::string> contents;
  for (const auto& entry : std::filesystem::recursive_directory_iterator(folder)) {
    const std::string name = entry.path().lexically_relative(folder).string();
    if (entry.is_symlink()) {
      contents[name] = "-> " + std::filesystem::read_symlink(entry.path()).string();
    } else if (entry.is_regular_file()) {
      contents[name] = ReadFile(entry.path());
    }
  }
  return contents;
}

TEST_CASE("blocks come back, in the same run and the next") {
  Setting setting;
  for (const int64_t num_bytes : {int64_t{1}, int64_t{4096}, kBlockBytes, 3 * kMiB + 1}) {
    CHECK_FALSE(setting.Has(1, num_bytes));
    setting.Write(1, num_bytes);
    CHECK(setting.Has(1, num_bytes));
    CHECK_FALSE(setting.Has(2, num_bytes));
  }
  CHECK(setting.HasAfterRestart(1));
  const BlockCacheStats stats = setting.cache().stats();
  CHECK(stats.num_hits == 4);
  CHECK(stats.num_misses == 8);
  CHECK(stats.bytes_written == 1 + 4096 + kBlockBytes + 3 * kMiB + 1);
  CHECK(stats.bytes_read == stats.bytes_written);
  CHECK(stats.num_skipped == 0);
  CHECK(stats.num_evicted == 0);
  CHECK(stats.num_damaged == 0);
  CHECK(setting.cache().failure().empty());
}

TEST_CASE("an object that was listed with another ETag has other blocks") {
  Setting setting;
  setting.Write(1);
  BlockKey key = KeyOf(1, kBlockBytes);
  key.object += "2";
  Bytes out(kBlockBytes);
  CHECK_FALSE(setting.cache().Read(key, out.data()));
}

TEST_CASE("names of objects do not reach the disk") {
  Setting setting;
  setting.Write(1);
  for (const auto& [name, content] : Contents(setting.folder())) {
    CHECK(name.find("bucket") == std::string::npos);
    CHECK(content.find("bucket") == std::string::npos);
  }
}

TEST_CASE("a block with any byte flipped is a miss, and goes unless it looks foreign") {
  constexpr int64_t kNumBytes = 50;
  Setting setting;
  setting.Write(1, kNumBytes);
  const auto path = setting.Path(1, kNumBytes);
  const std::string content = ReadFile(path);
  for (size_t i = 0; i < content.size(); ++i) {
    std::string damaged = content;
    damaged[i] = static_cast<char>(~damaged[i]);
    WriteFile(path, damaged);
    REQUIRE_FALSE(setting.Has(1, kNumBytes));
    const bool has_magic = i >= 8;
    REQUIRE(std::filesystem::exists(path) != has_magic);
    std::filesystem::remove(path);
    setting.Write(1, kNumBytes);
    REQUIRE(setting.Has(1, kNumBytes));
  }
  CHECK(setting.cache().stats().num_damaged == static_cast<int64_t>(content.size()));
}

TEST_CASE("a truncated block is a miss and goes") {
  Setting setting;
  for (const uintmax_t size :
       {uintmax_t{0}, uintmax_t{63}, uintmax_t{64}, uintmax_t{kBlockBytes}}) {
    setting.Write(1);
    std::filesystem::resize_file(setting.Path(1), size);
    CHECK_FALSE(setting.Has(1));
    CHECK_FALSE(std::filesystem::exists(setting.Path(1)));
  }
  setting.Write(1);
  CHECK(setting.Has(1));
}

TEST_CASE("beyond the limit the least used blocks go, down to nine tenths") {
  // Room for 20 blocks; 18 are left.
  Setting setting(20 * kBlockDiskBytes);
  for (int64_t i = 0; i < 20; ++i) {
    setting.Write(i);
    Age(setting.Path(i), 1000 - i);
  }
  CHECK(setting.cache().stats().num_evicted == 0);
  // Reading marks as used.
  CHECK(setting.Has(0));
  CHECK(setting.Has(2));
  // The folder is listed after each tenth of the limit.
  setting.Write(20);
  CHECK(setting.disk_bytes() == 21 * kBlockDiskBytes);
  setting.Write(21);
  CHECK(setting.cache().stats().num_evicted == 4);
  CHECK(setting.disk_bytes() == 18 * kBlockDiskBytes);
  for (int64_t i = 0; i < 22; ++i) {
    CAPTURE(i);
    CHECK(setting.Has(i) == (i != 1 && i != 3 && i != 4 && i != 5));
  }
}

TEST_CASE("a block is marked as used once a minute at most") {
  Setting setting;
  setting.Write(1);
  const auto time = [&] { return std::filesystem::last_write_time(setting.Path(1)); };
  const auto used_before = [&](int64_t seconds) {
    Age(setting.Path(1), seconds);
    const auto before = time();
    CHECK(setting.Has(1));
    return time() != before;
  };
  CHECK_FALSE(used_before(30));
  CHECK(used_before(90));
  CHECK(used_before(-30));  // in the future
}

TEST_CASE("a lower limit holds from the start") {
  Setting setting;
  for (int64_t i = 0; i < 20; ++i) setting.Write(i);
  const BlockCache lower(setting.folder(), 15 * kBlockDiskBytes);
  CHECK(setting.disk_bytes() <= 15 * kBlockDiskBytes * 9 / 10);
  CHECK(lower.stats().num_evicted == 7);
}

TEST_CASE("blocks that others removed make room") {
  Setting setting(20 * kBlockDiskBytes);
  for (int64_t i = 0; i < 20; ++i) setting.Write(i);
  for (int64_t i = 0; i < 10; ++i) std::filesystem::remove(setting.Path(i));
  for (int64_t i = 20; i < 30; ++i) setting.Write(i);
  CHECK(setting.cache().stats().num_evicted == 0);
  CHECK(setting.disk_bytes() == 20 * kBlockDiskBytes);
}

TEST_CASE("a cache that keeps nothing reads what others have kept") {
  Setting setting;
  setting.Write(1);
  const auto before = Contents(setting.folder());
  BlockCache reading(setting.folder(), BlockCache::kKeepsNothing);
  reading.Write(KeyOf(2, kBlockBytes), BytesOf(2, kBlockBytes));
  ExactBuffer<uint8_t> out(static_cast<size_t>(kBlockBytes));
  CHECK(reading.Read(KeyOf(1, kBlockBytes), out.data()));
  CHECK_FALSE(reading.Read(KeyOf(2, kBlockBytes), out.data()));
  CHECK(Contents(setting.folder()) == before);
  CHECK(reading.failure().empty());
}

TEST_CASE("limits that are too small are refused, before the folder is made") {
  const TemporaryFolder temporary;
  const auto error = Caught([&] { BlockCache(temporary.cache(), kMiB - 1); });
  REQUIRE(error);
  CHECK(error->kind() == ErrorKind::kInvalidArgument);
  CHECK(Mentions(*error, "1048576 bytes or more: 1048575"));
  CHECK_FALSE(std::filesystem::exists(temporary.cache()));
}

TEST_CASE("a block that the limit has no room for is skipped with a message") {
  Setting setting(kMiB);
  setting.Write(1, kMiB - kMiB / 10);
  CHECK(setting.cache().failure() ==
        "a block of 943719 bytes does not fit into a cache of 1048576 bytes");
  CHECK(setting.cache().stats().num_skipped == 1);
  CHECK_FALSE(setting.Has(1, kMiB - kMiB / 10));
  // Others go on.
  setting.Write(1);
  CHECK(setting.Has(1));
  CHECK(Throws(ErrorKind::kInternal,
               [&] { setting.cache().Write(KeyOf(1, 10), BytesOf(1, 9)); }));
}

TEST_CASE("files that are no blocks are neither read, replaced, evicted nor removed") {
  Setting setting(20 * kBlockDiskBytes);
  setting.Write(0);
  const auto subfolder = setting.Path(0).parent_path();
  WriteFile(setting.folder() / "notes", "text");
  WriteFile(subfolder / "notes.block", "text");
  WriteFile(subfolder / "ffffffffffffffffffffffffffffffff.block", "in the wrong folder");
  WriteFile(setting.folder() / "new" / "notes", "text");
  WriteFile(setting.folder() / "new" / "1-2-3.new", "text");
  WriteFile(setting.folder() / "new" / "empty", "");
  WriteFile(setting.folder() / "new" / "1-x-3.new", "");
  // In the place of a block.
  std::filesystem::create_directory(setting.Path(1).parent_path());
  WriteFile(setting.Path(1), std::string(kBlockBytes + kBlockHeaderBytes, 'x'));
  const auto block_of_other = setting.Path(2);
  std::filesystem::create_directory(block_of_other.parent_path());
  WriteFile(setting.outside() / "linked", ReadFile(setting.Path(0)));
  std::filesystem::create_symlink(setting.outside() / "linked", block_of_other);
  std::filesystem::create_directories(setting.Path(3) / "inner");
  for (const auto& entry :
       std::filesystem::recursive_directory_iterator(setting.folder())) {
    if (entry.path() != setting.Path(0)) Age(entry.path(), 10'000);
  }
  const auto before = Contents(setting.outside());
  // All that has a block's name and place counts.
  CHECK(setting.disk_bytes() == 2 * kBlockDiskBytes);

  for (int64_t i = 1; i < 4; ++i) {
    CHECK_FALSE(setting.Has(i));
    setting.Write(i);
    CHECK_FALSE(setting.Has(i));
  }
  for (int64_t i = 4; i < 60; ++i) setting.Write(i);
  CHECK(setting.cache().stats().num_evicted > 30);
  {
    const BlockCache again(setting.folder(), 11 * kBlockDiskBytes);
  }
  const auto after = Contents(setting.outside());
  for (const auto& [name, content] : before) {
    CAPTURE(name);
    if (setting.outside() / name == setting.Path(0)) continue;
    REQUIRE(after.contains(name));
    CHECK((after.at(name) == content));
  }
  CHECK(std::filesystem::exists(setting.Path(3) / "inner"));
  CHECK(setting.cache().failure().empty());
}

TEST_CASE("a cache that is full of other files ends, and leaves them") {
  Setting setting(kMiB);
  std::filesystem::create_directory(setting.Path(1).parent_path());
  WriteFile(setting.Path(1), std::string(2 * kMiB, 'x'));
  setting.Write(2);
  setting.Write(3);
  CHECK(setting.cache().failure() ==
        "the cache is full of files that are none of its blocks");
  CHECK(std::filesystem::file_size(setting.Path(1)) == 2 * kMiB);
  setting.Write(4);
  CHECK(setting.cache().stats().num_skipped == 1);
  CHECK_FALSE(std::filesystem::exists(setting.Path(4)));
}

TEST_CASE("links in the folder lead nowhere") {
  Setting setting(kMiB);
  setting.Write(1);
  const auto outside = setting.outside() / "outside";
  std::filesystem::create_directory(outside);

  // A subfolder.
  const auto subfolder = setting.Path(1).parent_path();
  std::filesystem::rename(subfolder, outside / "subfolder");
  std::filesystem::create_symlink(outside / "subfolder", subfolder);
  const auto before = Contents(outside);
  CHECK_FALSE(setting.Has(1));
  setting.Write(1);
  CHECK_FALSE(setting.cache().failure().empty());
  CHECK(Contents(outside) == before);

  // Other caches do not remove what is behind the link either.
  CHECK(Throws(ErrorKind::kIo, [&] { BlockCache(setting.folder(), kMiB); }));
  CHECK(Contents(outside) == before);
  std::filesystem::remove(subfolder);

  // The folder of new blocks, and the lock.
  for (const char* name : {"new", "eviction"}) {
    CAPTURE(name);
    BlockCache cache(setting.folder(), kMiB);
    const auto path = setting.folder() / name;
    const auto kept = setting.outside() / "kept";
    if (std::filesystem::exists(path)) std::filesystem::rename(path, kept);
    std::filesystem::create_symlink(outside / "target", path);
    for (int64_t i = 0; i < 30; ++i) {
      cache.Write(KeyOf(i, kBlockBytes), BytesOf(i, kBlockBytes));
    }
    CHECK_FALSE(cache.failure().empty());
    CHECK(Contents(outside) == before);
    std::filesystem::remove(path);
    if (std::filesystem::exists(kept)) std::filesystem::rename(kept, path);
  }
}

TEST_CASE("what killed processes had begun goes after a minute, not before") {
  Setting setting;
  setting.Write(1);
  const auto fresh = setting.folder() / "new" / "1-2-3.new";
  const auto stale = setting.folder() / "new" / "1-2-4.new";
  const auto unfinished = setting.folder() / "new" / "1-2-5.new";
  WriteFile(fresh, "tpqblock");
  WriteFile(stale, "tpqblock");
  WriteFile(unfinished, std::string(100, '\0'));
  Age(stale, 90);
  Age(unfinished, 90);
  {
    // Its writer lives.
    const CacheFolder folder(setting.folder());
    const NewBlock alive(folder);
    for (const auto& entry :
         std::filesystem::directory_iterator(setting.folder() / "new")) {
      if (entry.path() != fresh) Age(entry.path(), 90);
    }
    {
      const BlockCache again(setting.folder(), kMiB);
    }
    CHECK(std::filesystem::exists(fresh));
    CHECK_FALSE(std::filesystem::exists(stale));
    CHECK_FALSE(std::filesystem::exists(unfinished));
    const std::filesystem::directory_iterator left(setting.folder() / "new");
    CHECK(std::distance(begin(left), end(left)) == 2);
  }
  const std::filesystem::directory_iterator left(setting.folder() / "new");
  CHECK(std::distance(begin(left), end(left)) == 1);
}

TEST_CASE("a folder that vanishes ends the cache with one message") {
  Setting setting;
  setting.Write(1);
  std::filesystem::remove_all(setting.folder());
  CHECK_FALSE(setting.Has(1));
  setting.Write(1);
  const std::string failure = setting.cache().failure();
  CHECK(failure.find("the cache folder was removed") != std::string::npos);
  // A new folder in its place is none of ours.
  std::filesystem::create_directory(setting.folder());
  setting.Write(1);
  CHECK_FALSE(setting.Has(1));
  CHECK(std::filesystem::is_empty(setting.folder()));
  CHECK(setting.cache().failure() == failure);
  CHECK(setting.cache().stats().num_skipped == 2);
}

TEST_CASE("while another process evicts, blocks are kept beyond the limit") {
  Setting setting(20 * kBlockDiskBytes);
  {
    const auto turn = CacheFolder(setting.folder()).TryLockEviction();
    REQUIRE(turn);
    for (int64_t i = 0; i < 30; ++i) setting.Write(i);
  }
  CHECK(setting.disk_bytes() == 30 * kBlockDiskBytes);
  CHECK(setting.cache().stats().num_skipped == 0);
  setting.Write(30);
  CHECK(setting.disk_bytes() == 18 * kBlockDiskBytes);
  CHECK(setting.Has(30));
}

TEST_CASE("a block that is evicted while it is read stays readable") {
  Setting setting(kMiB);
  setting.Write(1);
  const CacheFolder folder(setting.folder());
  const FileDescriptor file = OpenBlock(folder, DigestOf(KeyOf(1, kBlockBytes)));
  REQUIRE(file);
  Age(setting.Path(1), 100);
  for (int64_t i = 2; i < 20; ++i) setting.Write(i);
  CHECK_FALSE(std::filesystem::exists(setting.Path(1)));
  Bytes out(kBlockBytes);
  CHECK(ReadBlock(file.get(), KeyOf(1, kBlockBytes), out.data()) == BlockState::kSound);
  CHECK(out == BytesOf(1, kBlockBytes));
}

TEST_CASE("a block that was replaced or used since it was listed is left") {
  Setting setting;
  setting.Write(1);
  const CacheFolder folder(setting.folder());
  const auto listed = ListBlocks(folder);
  REQUIRE(listed.size() == 1);
  CHECK(listed[0].disk_bytes == kBlockDiskBytes);
  setting.Write(1);
  Age(setting.Path(1), 100);
  CHECK(RemoveBlock(folder, listed[0]) == 0);
  const auto aged = ListBlocks(folder);
  CHECK(setting.Has(1));
  CHECK(RemoveBlock(folder, aged[0]) == 0);
  CHECK(RemoveBlock(folder, ListBlocks(folder)[0]) == kBlockDiskBytes);
  CHECK_FALSE(setting.Has(1));
}

TEST_CASE("a file that may not grow ends the cache with one message, without a trace") {
  Setting setting;
  setting.Write(1);
  rlimit before{};
  REQUIRE(getrlimit(RLIMIT_FSIZE, &before) == 0);
  std::signal(SIGXFSZ, SIG_IGN);
  const rlimit small = {.rlim_cur = kBlockBytes / 2, .rlim_max = before.rlim_max};
  REQUIRE(setrlimit(RLIMIT_FSIZE, &small) == 0);
  setting.Write(2);
  REQUIRE(setrlimit(RLIMIT_FSIZE, &before) == 0);
  CHECK(setting.cache().failure().starts_with(
      "cannot write a block of the cache: File too large"));
  CHECK(setting.Has(1));
  CHECK_FALSE(setting.Has(2));
  CHECK(std::filesystem::is_empty(setting.folder() / "new"));
  setting.Write(3);
  CHECK_FALSE(setting.Has(3));
}

TEST_CASE("threads write, read and evict together") {
  Setting setting(12 * kBlockDiskBytes);
  std::vector<std::thread> threads;
  std::atomic<int64_t> num_wrong = 0;
  for (uint64_t thread = 0; thread < 4; ++thread) {
    threads.emplace_back([&, thread] {
      testing::Draws draws(thread);
      Bytes out(kBlockBytes);
      for (int i = 0; i < 100; ++i) {
        const int64_t number = draws.Below(24);
        const BlockKey key = KeyOf(number, kBlockBytes);
        const Bytes bytes = BytesOf(number, kBlockBytes);
        if (!setting.cache().Read(key, out.data())) {
          setting.cache().Write(key, bytes);
        } else if (out != bytes) {
          ++num_wrong;
        }
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  CHECK(num_wrong == 0);
  const BlockCacheStats stats = setting.cache().stats();
  CHECK(stats.num_hits + stats.num_misses == 400);
  CHECK(stats.num_hits > 0);
  CHECK(stats.num_evicted > 0);
  CHECK(stats.num_damaged == 0);
  CHECK(setting.cache().failure().empty());
  // The limit, its tenth, and the block that each thread wrote last.
  CHECK(setting.disk_bytes() <= (12 + 2 + 4) * kBlockDiskBytes);
  const BlockCache again(setting.folder(), 12 * kBlockDiskBytes);
  CHECK(setting.disk_bytes() <= 12 * kBlockDiskBytes);
}

}  // namespace
}  // namespace torchparquet
