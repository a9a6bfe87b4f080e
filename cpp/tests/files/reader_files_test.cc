#include "files/reader_files.h"

#include <doctest/doctest.h>

#include <array>
#include <memory>
#include <thread>
#include <vector>

#include "recipes/reading.h"
#include "recipes/store.h"

namespace torchparquet {
namespace {

using testing::DataSet;
using testing::PlannedIn;
using testing::Store;

TEST_CASE("threads that open one file of a store at once get the same") {
  const DataSet data({.columns = {{"a", "int64"}}, .row_group_rows = {100}}, 1);
  const auto store = std::make_shared<Store>();
  ReaderFiles files(std::make_shared<ParquetFiles>(PlannedIn(data, store)),
                    std::make_shared<RemoteReads>(store));
  constexpr size_t kNumThreads = 4;
  std::array<std::shared_ptr<const ParquetFile>, kNumThreads> opened;
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

}  // namespace
}  // namespace torchparquet
