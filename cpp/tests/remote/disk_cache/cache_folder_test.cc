#include "remote/disk_cache/cache_folder.h"

#include <doctest/doctest.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <optional>

#include "caught.h"
#include "remote/disk_cache/cache_setting.h"

namespace torchparquet {
namespace {

using testing::Caught;
using testing::Mentions;
using testing::ReadFile;
using testing::TemporaryFolder;
using testing::Throws;
using testing::WriteFile;

constexpr char kMarker[] = "torchparquet-blocks";

TEST_CASE("a folder is made with its parents, for its user alone, and tagged") {
  const TemporaryFolder temporary;
  for (const char* name : {"a/b/cache", "a/other", "c//d/cache///"}) {
    CAPTURE(name);
    const std::filesystem::path path = temporary.path() / name;
    const CacheFolder folder(path);
    struct stat status{};
    REQUIRE(stat(path.c_str(), &status) == 0);
    CHECK((status.st_mode & 0777) == 0700);
    CHECK(ReadFile(path / "CACHEDIR.TAG")
              .starts_with("Signature: 8a477f597d28d172789f06886806bc55\n"));
    CHECK(ReadFile(path / kMarker) == "torchparquet blocks, format 1\n");
  }
}

TEST_CASE("empty and marked folders are taken, and so is one in the making") {
  const TemporaryFolder temporary;
  const std::filesystem::path path = temporary.cache();
  std::filesystem::create_directory(path);
  CacheFolder{path};
  CacheFolder{path / ""};
  WriteFile(path / "a file of the user", "text");
  CacheFolder{path};
  CHECK(ReadFile(path / "a file of the user") == "text");

  const std::filesystem::path half_made = temporary.path() / "half";
  std::filesystem::create_directory(half_made);
  WriteFile(half_made / kMarker, "");
  WriteFile(half_made / "CACHEDIR.TAG", "Signature");
  CacheFolder{half_made};
  CHECK(ReadFile(half_made / kMarker) == "torchparquet blocks, format 1\n");
}

TEST_CASE("a folder with other files is refused and left as it is") {
  const TemporaryFolder temporary;
  const std::filesystem::path path = temporary.cache();
  std::filesystem::create_directory(path);
  WriteFile(path / "CACHEDIR.TAG", "another program's");
  const auto error = Caught([&] { CacheFolder{path}; });
  REQUIRE(error);
  CHECK(error->kind() == ErrorKind::kInvalidArgument);
  CHECK(Mentions(*error, "the cache folder has other files"));
  CHECK(Mentions(*error, path));
  CHECK_FALSE(std::filesystem::exists(path / kMarker));

  // An empty marker is not enough.
  WriteFile(path / kMarker, "");
  WriteFile(path / "other", "");
  CHECK(Throws(ErrorKind::kInvalidArgument, [&] { CacheFolder{path}; }));
  WriteFile(path / kMarker, "no marker of ours\n");
  CHECK(Throws(ErrorKind::kInvalidArgument, [&] { CacheFolder{path}; }));
  CHECK(ReadFile(path / kMarker) == "no marker of ours\n");
}

TEST_CASE("a folder of another version is refused with both ways out") {
  const TemporaryFolder temporary;
  const std::filesystem::path path = temporary.cache();
  std::filesystem::create_directory(path);
  WriteFile(path / kMarker, "torchparquet blocks, format 2\n");
  const auto error = Caught([&] { CacheFolder{path}; });
  REQUIRE(error);
  CHECK(error->kind() == ErrorKind::kInvalidArgument);
  CHECK(Mentions(*error, "name another folder or remove this one"));
  CHECK(Mentions(*error, "format 2"));
}

TEST_CASE("paths that lead to no folder are errors") {
  const TemporaryFolder temporary;
  const std::filesystem::path file = temporary.path() / "file";
  WriteFile(file, "text");
  CHECK(Throws(ErrorKind::kIo, [&] { CacheFolder{file}; }));
  CHECK(Throws(ErrorKind::kIo, [&] { CacheFolder{file / "cache"}; }));
  CHECK(Throws(ErrorKind::kInvalidArgument, [&] { CacheFolder{""}; }));
  CHECK(ReadFile(file) == "text");
}

TEST_CASE("the folder itself may be reached through a link, nothing in it") {
  const TemporaryFolder temporary;
  const auto target = temporary.path() / "target";
  std::filesystem::create_directory(target);
  std::filesystem::create_symlink(target, temporary.cache());
  const CacheFolder folder(temporary.cache());
  CHECK(std::filesystem::exists(target / kMarker));

  const auto outside = temporary.path() / "outside";
  std::filesystem::create_directory(outside);
  WriteFile(outside / "file", "text");
  std::filesystem::create_symlink(outside, target / "ab");
  CHECK(Throws(ErrorKind::kIo, [&] { folder.OpenSubfolder("ab"); }));
  CHECK(Throws(ErrorKind::kIo, [&] { folder.MakeSubfolder("ab"); }));
  const FileDescriptor made = folder.MakeSubfolder("cd");
  std::filesystem::create_symlink(outside / "file", target / "cd" / "link");
  for (const int flags : {O_RDONLY, O_RDWR, O_RDWR | O_CREAT}) {
    CHECK(Throws(ErrorKind::kIo, [&] { folder.OpenFile(made, "link", flags); }));
  }
  std::filesystem::create_symlink(outside / "new", target / "eviction");
  CHECK(Throws(ErrorKind::kIo, [&] { folder.TryLockEviction(); }));
  CHECK_FALSE(std::filesystem::exists(outside / "new"));

  // A file with another name elsewhere is not written to.
  std::filesystem::create_hard_link(outside / "file", target / "cd" / "second");
  CHECK(Throws(ErrorKind::kIo, [&] { folder.OpenFile(made, "second", O_RDWR); }));
  CHECK(folder.OpenFile(made, "second", O_RDONLY));
}

TEST_CASE("a marker that is a link or a pipe does not make a cache") {
  const TemporaryFolder temporary;
  const std::filesystem::path path = temporary.cache();
  std::filesystem::create_directory(path);
  WriteFile(temporary.path() / "marker", "torchparquet blocks, format 1\n");
  std::filesystem::create_symlink(temporary.path() / "marker", path / kMarker);
  CHECK(Throws(ErrorKind::kIo, [&] { CacheFolder{path}; }));
  std::filesystem::remove(path / kMarker);
  REQUIRE(mkfifo((path / kMarker).c_str(), 0600) == 0);
  CHECK(Throws(ErrorKind::kIo, [&] { CacheFolder{path}; }));
}

TEST_CASE("one at a time evicts") {
  const TemporaryFolder temporary;
  const CacheFolder folder(temporary.cache());
  const CacheFolder same(temporary.cache());
  CHECK(same.TryLockEviction());
  const std::optional<FileLock> eviction = folder.TryLockEviction();
  CHECK(eviction);
  CHECK_FALSE(same.TryLockEviction());
}

TEST_CASE("a folder that was removed, or lost its marker, is no cache any more") {
  const TemporaryFolder temporary;
  const CacheFolder folder(temporary.cache());
  folder.CheckMarked();
  const auto marker = temporary.cache() / kMarker;
  std::filesystem::remove(marker);
  const auto error = Caught([&] { folder.CheckMarked(); });
  REQUIRE(error);
  CHECK(error->kind() == ErrorKind::kIo);
  CHECK(Mentions(*error, "the cache folder was removed"));
  std::filesystem::remove_all(temporary.cache());
  CHECK(Throws(ErrorKind::kIo, [&] { folder.TryLockEviction(); }));
  CHECK(Throws(ErrorKind::kIo, [&] { folder.MakeSubfolder("ab"); }));
  CHECK_FALSE(folder.OpenSubfolder("ab"));
}

}  // namespace
}  // namespace torchparquet
