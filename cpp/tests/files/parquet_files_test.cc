#include "files/parquet_files.h"

#include <doctest/doctest.h>

#if defined(__linux__)
#include <sys/inotify.h>
#include <unistd.h>
#endif

#include <array>
#include <barrier>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "caught.h"
#include "draws.h"
#include "recipes/parquet_recipe.h"
#include "recipes/reading.h"
#include "recipes/store.h"

namespace torchparquet {
namespace {

using testing::DataSet;
using testing::Draws;
using testing::FileRecipe;
using testing::PlannedIn;
using testing::Store;
using testing::Throws;
using Opened = std::shared_ptr<const ParquetFile>;

FileRecipe Recipe(int64_t num_row_groups) {
  return {.columns = {{"id", "int64"}, {"x", "float32"}},
          .row_group_rows = std::vector<int64_t>(static_cast<size_t>(num_row_groups), 1)};
}

TEST_CASE("a footer is parsed once, however often its file is closed and opened") {
  const DataSet data(Recipe(3), 2);
  ParquetFiles files(data.Planned());
  std::shared_ptr<const ParquetFile> first = files.Open(0);
  const std::shared_ptr<const ParsedFooter> footer = files.Open(0)->footer();
  CHECK(files.Open(0) == first);  // open still
  CHECK(files.Open(1)->footer() != footer);
  files.Close(nullptr);
  CHECK(files.Open(0) != first);
  CHECK(files.Open(0)->footer() == footer);
  CHECK(first->FindLeaf("x") == 1);  // nobody's file is closed under them
}

TEST_CASE("the footer of a file that was replaced is not taken for its own") {
  const DataSet data(Recipe(3), 1);
  const DataSet other({.columns = {{"y", "float32"}}, .row_group_rows = {7}}, 1);
  ParquetFiles unplanned(data.Planned());
  std::vector<PlannedFile> known = data.Planned();
  known[0].identity = unplanned.Open(0)->file().identity();
  ParquetFiles planned(known);
  CHECK(planned.Open(0)->FindLeaf("id") == 0);
  unplanned.Close(nullptr);
  planned.Close(nullptr);
  std::filesystem::rename(other.path(0), data.path(0));
  CHECK(unplanned.Open(0)->FindLeaf("id") == -1);
  CHECK(unplanned.Open(0)->FindLeaf("y") == 0);
  CHECK(Throws(ErrorKind::kChanged, [&] { planned.Open(0); }));
}

TEST_CASE("footers are kept up to a bound") {
  const DataSet large(Recipe(1000), 1);
  const DataSet small(Recipe(1), 1);
  std::vector<PlannedFile> planned = large.Planned();
  planned.push_back(small.Planned()[0]);
  constexpr int64_t kMaxBytes = 20'000;
  ParquetFiles files(planned, {}, kMaxBytes);
  const std::shared_ptr<const ParsedFooter> not_kept = files.Open(0)->footer();
  REQUIRE(not_kept->MemoryBytes() > kMaxBytes);
  const std::shared_ptr<const ParsedFooter> kept = files.Open(1)->footer();
  files.Close(nullptr);
  CHECK(files.Open(0)->footer() != not_kept);
  CHECK(files.Open(1)->footer() == kept);
}

#if defined(__linux__)
// Counts the closings of files that were open to be read, in one directory.
class Closings {
 public:
  explicit Closings(const std::filesystem::path& directory)
      : fd_(inotify_init1(IN_NONBLOCK)) {
    REQUIRE(inotify_add_watch(fd_, directory.c_str(), IN_CLOSE_NOWRITE) >= 0);
  }
  ~Closings() { close(fd_); }
  bool happened() const {
    std::array<char, 4096> events;
    return read(fd_, events.data(), events.size()) > 0;
  }

 private:
  const int fd_;
};

TEST_CASE("threads that want the same file at once open it once") {
  constexpr int64_t kNumFiles = 20;
  const DataSet data(Recipe(300), kNumFiles);
  ParquetFiles files(data.Planned());
  const Closings closings(std::filesystem::path(data.path(0)).parent_path());
  constexpr size_t kNumThreads = 8;
  std::array<std::vector<Opened>, kNumThreads> opened;
  std::barrier next_file(kNumThreads);
  {
    std::vector<std::jthread> threads;
    for (auto& of_thread : opened) {
      threads.emplace_back([&] {
        for (int64_t file = 0; file < kNumFiles; ++file) {
          next_file.arrive_and_wait();
          of_thread.push_back(files.Open(file));
        }
      });
    }
  }
  CHECK_FALSE(closings.happened());
  for (const auto& of_thread : opened) CHECK(of_thread == opened[0]);
  files.Close(nullptr);
  for (auto& of_thread : opened) of_thread.clear();
  CHECK(closings.happened());
}
#endif

TEST_CASE("threads get the files they want, of more than stay open") {
  constexpr int64_t kNumFiles = 150;
  const DataSet data(Recipe(1), kNumFiles);
  ParquetFiles files(data.Planned());
  constexpr size_t kNumThreads = 8;
  std::array<int64_t, kNumThreads> num_wrong{};
  {
    std::vector<std::jthread> threads;
    for (size_t thread = 0; thread < kNumThreads; ++thread) {
      threads.emplace_back([&, thread] {
        Draws draws(thread);
        for (int i = 0; i < 500; ++i) {
          const int64_t file = draws.Below(kNumFiles);
          num_wrong[thread] += files.Open(file)->file().path() != data.path(file);
          if (i % 100 == 99) files.Close(nullptr);
        }
      });
    }
  }
  for (const int64_t wrong : num_wrong) CHECK(wrong == 0);
}

TEST_CASE("the files that were used last stay open") {
  constexpr int64_t kMax{ParquetFiles::kMaxOpenFiles};
  const DataSet data(Recipe(1), kMax + 1);
  ParquetFiles files(data.Planned());
  std::vector<Opened> opened;
  for (int64_t file = 0; file < kMax; ++file) opened.push_back(files.Open(file));
  CHECK(files.Open(0) == opened[0]);
  files.Open(kMax);
  CHECK(files.Open(0) == opened[0]);
  CHECK(files.Open(2) == opened[2]);
  CHECK(files.Open(1) != opened[1]);
}

TEST_CASE("a file that could not be opened is opened once it is there") {
  const DataSet data(Recipe(1), 1);
  ParquetFiles files(data.Planned());
  const std::string aside = data.path(0) + ".aside";
  std::filesystem::rename(data.path(0), aside);
  CHECK(Throws(ErrorKind::kFileNotFound, [&] { files.Open(0); }));
  std::filesystem::rename(aside, data.path(0));
  CHECK(files.Open(0)->FindLeaf("x") == 1);
}

TEST_CASE("threads that open one file of a store at once get the same") {
  const DataSet data(Recipe(1), 1);
  const auto store = std::make_shared<Store>();
  ReaderFiles files(std::make_shared<ParquetFiles>(PlannedIn(data, store)),
                    std::make_shared<RemoteBlocks>(store));
  constexpr size_t kNumThreads = 4;
  std::array<Opened, kNumThreads> opened;
  store->Stall();
  {
    std::vector<std::jthread> threads;
    for (auto& file : opened) threads.emplace_back([&] { file = files.Open(0); });
    store->AwaitStarted(kNumThreads);  // each waits for the footer
    store->Release();
  }
  REQUIRE(opened[0] != nullptr);
  for (const auto& file : opened) CHECK(file == opened[0]);
  CHECK(files.Open(0) == opened[0]);
}

TEST_CASE("a file of a store is open for one reader, as long as that lives") {
  const DataSet data(Recipe(1), 1);
  const auto store = std::make_shared<Store>();
  const auto all = std::make_shared<ParquetFiles>(PlannedIn(data, store));
  ReaderFiles first(all, std::make_shared<RemoteBlocks>(store));
  const Opened opened = first.Open(0);
  std::weak_ptr<const ParquetFile> of_second;
  {
    ReaderFiles second(all, std::make_shared<RemoteBlocks>(store));
    of_second = second.Open(0);
    CHECK(second.Open(0) == of_second.lock());
    CHECK(of_second.lock() != opened);
    CHECK(of_second.lock()->footer() == opened->footer());
  }
  CHECK(of_second.expired());
  CHECK(first.Open(0) == opened);
}

}  // namespace
}  // namespace torchparquet
