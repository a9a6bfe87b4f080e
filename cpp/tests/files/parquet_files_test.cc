#include "files/parquet_files.h"

#include <doctest/doctest.h>

#include <cstdint>
#include <filesystem>
#include <memory>
#include <vector>

#include "caught.h"
#include "recipes/parquet_recipe.h"
#include "recipes/reading.h"

namespace torchparquet {
namespace {

using testing::DataSet;
using testing::FileRecipe;
using testing::Throws;

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
  files.Close();
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
  unplanned.Close();
  planned.Close();
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
  files.Close();
  CHECK(files.Open(0)->footer() != not_kept);
  CHECK(files.Open(1)->footer() == kept);
}

}  // namespace
}  // namespace torchparquet
