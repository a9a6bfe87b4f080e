#pragma once

#include <doctest/doctest.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>
#include <string_view>
#include <vector>

#include "draws.h"
#include "remote/disk_cache/block_file.h"
#include "remote/disk_cache/block_store.h"
#include "remote/disk_cache/cache_folder.h"

namespace torchparquet::testing {

using Bytes = std::vector<uint8_t>;

// A folder with nothing in it, for the time of a test.
class TemporaryFolder {
 public:
  TemporaryFolder() {
    std::string name =
        (std::filesystem::temp_directory_path() / "torchparquet-XXXXXX").string();
    REQUIRE(mkdtemp(name.data()) != nullptr);
    path_ = name;
  }
  ~TemporaryFolder() {
    // A forked child leaves it to the parent.
    if (owner_ == getpid()) std::filesystem::remove_all(path_);
  }
  TemporaryFolder(const TemporaryFolder&) = delete;
  TemporaryFolder& operator=(const TemporaryFolder&) = delete;

  const std::filesystem::path& path() const { return path_; }
  std::filesystem::path cache() const { return path_ / "cache"; }

 private:
  const pid_t owner_ = getpid();
  std::filesystem::path path_;
};

inline void WriteFile(const std::filesystem::path& path, std::string_view text) {
  std::ofstream(path, std::ios::binary) << text;
}

inline std::string ReadFile(const std::filesystem::path& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

// The key of block `number` of an object, and its bytes, which no other block has.
inline BlockKey KeyOf(int64_t number, int64_t num_bytes) {
  return {.object = "s3://bucket/key\n" + std::to_string(num_bytes) + "\n\"etag\"",
          .range = {.offset = number * num_bytes, .num_bytes = num_bytes}};
}

inline Bytes BytesOf(int64_t number, int64_t num_bytes) {
  Draws draws(static_cast<uint64_t>(number * 1'000'003 + num_bytes));
  return RandomBytes(draws, num_bytes);
}

// The room on disk of all blocks of a cache.
inline int64_t DiskBytes(const std::filesystem::path& cache) {
  int64_t disk_bytes = 0;
  for (const StoredBlock& block : ListBlocks(CacheFolder(cache))) {
    disk_bytes += block.disk_bytes;
  }
  return disk_bytes;
}

inline std::filesystem::path PathOf(const std::filesystem::path& cache,
                                    const BlockKey& key) {
  const BlockDigest digest = DigestOf(key);
  return cache / BlockSubfolder(digest) / BlockName(digest);
}

// Makes a file look as if it was written or used `seconds` ago.
inline void Age(const std::filesystem::path& path, int64_t seconds) {
  timespec now{};
  clock_gettime(CLOCK_REALTIME, &now);
  const timespec times[] = {{.tv_sec = 0, .tv_nsec = UTIME_OMIT},
                            {.tv_sec = now.tv_sec - seconds, .tv_nsec = now.tv_nsec}};
  REQUIRE(utimensat(AT_FDCWD, path.c_str(), times, AT_SYMLINK_NOFOLLOW) == 0);
}

}  // namespace torchparquet::testing
