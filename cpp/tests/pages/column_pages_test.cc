#include "pages/column_pages.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <fstream>
#include <limits>
#include <memory>
#include <string>
#include <vector>

#include "caught.h"
#include "recipes/reading.h"

namespace torchparquet {
namespace {

using testing::DataSet;
using testing::FileRecipe;
using testing::StoredAs;
using testing::StoredColumn;
using testing::Throws;

constexpr int64_t kNoLimit = std::numeric_limits<int64_t>::max();

// One page of values that a codec makes little of, or a dictionary before it.
FileRecipe Recipe(bool second_version, bool has_dictionary) {
  StoredColumn column{"a", "int64"};
  if (has_dictionary) column = {"a", "int8", StoredAs::kDictionary};
  return {.columns = {column},
          .row_group_rows = {2000},
          .page_rows = 2000,
          .second_version = second_version,
          .compressed = true};
}

// The offset and size of the first page's claim of uncompressed bytes.
struct Claim {
  int64_t offset = 0;
  int64_t num_bytes = 0;
};

// Pages begin with their type, and then their uncompressed size: fields 1 and 2, both of
// them zigzag varints. The first page follows the magic number of the file.
Claim FindClaim(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  std::vector<uint8_t> bytes(64);
  file.read(reinterpret_cast<char*>(bytes.data()), std::ssize(bytes));
  REQUIRE(bytes[4] == 0x15);
  REQUIRE(bytes[6] == 0x15);
  Claim claim{.offset = 7, .num_bytes = 1};
  while ((bytes[static_cast<size_t>(claim.offset + claim.num_bytes - 1)] & 0x80) != 0) {
    ++claim.num_bytes;
  }
  return claim;
}

// Claims as much as the bytes there can tell.
int64_t ClaimMost(const std::string& path) {
  const Claim claim = FindClaim(path);
  std::fstream file(path, std::ios::binary | std::ios::in | std::ios::out);
  file.seekp(claim.offset);
  std::string varint(static_cast<size_t>(claim.num_bytes), '\xFF');
  varint.front() = '\xFE';  // even: not below 0
  varint.back() = '\x7F';
  file << varint;
  return (int64_t{1} << (7 * claim.num_bytes - 1)) - 1;
}

std::optional<Error> ReadFirst(const DataSet& data, int64_t max_page_bytes) {
  const ParquetFile file(PlannedFile{data.path(0), {}});
  ColumnBuffers buffers;
  ColumnPages pages(file, 0, 0, {.max_page_bytes = max_page_bytes}, &buffers);
  DecodeScratch scratch;
  pages.BeginTask(&scratch, 2000);
  const PageHeader* header = pages.Next();
  REQUIRE(header != nullptr);
  const auto error = testing::Caught([&] {
    if (header->is_data()) {
      pages.ReadDataPage();
    } else {
      pages.ReadDictionaryPage();
    }
  });
  // No memory is taken for what cannot be.
  if (error) {
    CHECK(buffers.page.capacity() == 0);
    CHECK(scratch.page.capacity() == 0);
  }
  return error;
}

TEST_CASE("a page claims no more than its bytes can become") {
  for (const bool second_version : {false, true}) {
    for (const bool has_dictionary : {false, true}) {
      const DataSet data(Recipe(second_version, has_dictionary), 1);
      CHECK_FALSE(ReadFirst(data, kNoLimit));
      const int64_t claimed = ClaimMost(data.path(0));
      const auto error = ReadFirst(data, kNoLimit);
      REQUIRE(error);
      CHECK(error->kind() == ErrorKind::kCorruptFile);
      CHECK(testing::Mentions(*error, "claims more bytes"));
      CHECK(testing::Mentions(*error, std::to_string(claimed)));
    }
  }
}

TEST_CASE("a page that is larger than its limit is not read") {
  for (const bool has_dictionary : {false, true}) {
    const DataSet data(Recipe(false, has_dictionary), 1);
    const int64_t num_bytes = [&] {
      const ParquetFile file(PlannedFile{data.path(0), {}});
      ColumnBuffers buffers;
      ColumnPages pages(file, 0, 0, {.max_page_bytes = kNoLimit}, &buffers);
      DecodeScratch scratch;
      pages.BeginTask(&scratch, 1);
      return pages.Next()->uncompressed_bytes;
    }();
    CHECK_FALSE(ReadFirst(data, num_bytes));
    const auto error = ReadFirst(data, num_bytes - 1);
    REQUIRE(error);
    CHECK(error->kind() == ErrorKind::kOutOfMemory);
    CHECK(testing::Mentions(*error, std::to_string(num_bytes)));
  }
}

TEST_CASE("what compresses best is within what is believed") {
  // A constant column, its one page as short as codecs make it.
  FileRecipe recipe{.columns = {{"a", "int32", StoredAs::kPlain, 1}},
                    .row_group_rows = {500'000},
                    .page_rows = 500'000,
                    .compressed = true};
  for (const bool second_version : {false, true}) {
    recipe.second_version = second_version;
    const DataSet data(recipe, 1);
    CHECK_FALSE(ReadFirst(data, kNoLimit));
  }
}

}  // namespace
}  // namespace torchparquet
