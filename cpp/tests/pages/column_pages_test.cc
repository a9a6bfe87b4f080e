#include "pages/column_pages.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <fstream>
#include <limits>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "caught.h"
#include "recipes/reading.h"

namespace torchparquet {
namespace {

using testing::DataSet;
using testing::FileRecipe;
using testing::StoredAs;
using testing::StoredColumn;

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
  pages.BeginTask(&scratch, {0, 2000});
  const PageHeader* header = pages.Next();
  REQUIRE(header != nullptr);
  const auto error = testing::Caught([&] {
    if (header->is_data()) {
      pages.ReadDataPage(false);
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
      pages.BeginTask(&scratch, {0, 1});
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

// The pages of a column chunk, each of which may be decompressed with the next one.
class Chunk {
 public:
  explicit Chunk(const std::string& path)
      : file_(PlannedFile{path, {}}),
        pages_(file_, 0, 0, {.max_page_bytes = kNoLimit}, &buffers_) {
    BeginTask();
  }

  // Of a thread that has read nothing yet.
  void BeginTask() {
    auto fresh = std::make_unique<DecodeScratch>();
    pages_.BeginTask(fresh.get(), {0, 1000});
    scratch_ = std::move(fresh);
  }

  ColumnPages& pages() { return pages_; }
  const TaskCosts& costs() const { return scratch_->costs; }
  const ColumnBuffers& buffers() const { return buffers_; }

  // All parts of the next page; nothing at the end.
  std::optional<std::string> Read(bool goes_on) {
    const PageHeader* header = pages_.Next();
    if (header == nullptr) return std::nullopt;
    const PageParts parts = pages_.ReadDataPage(goes_on);
    std::string text;
    for (const auto part : {parts.repetition, parts.definition, parts.values.bytes()}) {
      text.append(part.begin(), part.end());
      text += '|';
    }
    return text;
  }

  std::vector<std::string> ReadAll(bool goes_on) {
    std::vector<std::string> pages;
    while (auto page = Read(goes_on)) pages.push_back(*page);
    return pages;
  }

 private:
  ColumnBuffers buffers_;
  std::unique_ptr<DecodeScratch> scratch_;
  const ParquetFile file_;
  ColumnPages pages_;
};

// Ten data pages with levels, whose values compress, of a codec that takes pairs.
FileRecipe PairRecipe(bool second_version) {
  return {.columns = {{"a", "int8", StoredAs::kPlain, 7}},
          .row_group_rows = {1000},
          .page_rows = 100,
          .second_version = second_version,
          .compressed = true};
}

TEST_CASE("two pages at once are the pages one by one") {
  for (const bool second_version : {false, true}) {
    const DataSet data(PairRecipe(second_version), 1);
    Chunk one_by_one(data.path(0));
    Chunk in_pairs(data.path(0));
    const auto pages = one_by_one.ReadAll(false);
    CHECK(pages.size() == 10);
    CHECK(in_pairs.ReadAll(true) == pages);
    CHECK(one_by_one.buffers().next_page.capacity() == 0);
    CHECK(in_pairs.buffers().next_page.capacity() > 0);
    CHECK(in_pairs.costs().num_decompressed == one_by_one.costs().num_decompressed);
    CHECK(in_pairs.costs().bytes_decompressed == one_by_one.costs().bytes_decompressed);
  }
}

TEST_CASE("a page decompressed with the one before may be skipped, or sought again") {
  const DataSet data(PairRecipe(false), 1);
  Chunk whole(data.path(0));
  const auto pages = whole.ReadAll(false);
  Chunk chunk(data.path(0));
  CHECK(chunk.Read(true) == pages[0]);
  chunk.pages().Next();
  CHECK(chunk.Read(true) == pages[2]);
  CHECK(chunk.Read(true) == pages[3]);
  const int64_t fourth = chunk.pages().page_offset();
  CHECK(chunk.Read(true) == pages[4]);
  chunk.pages().Seek(fourth);
  CHECK(chunk.Read(true) == pages[3]);
  CHECK(chunk.Read(false) == pages[4]);
  CHECK(chunk.Read(true) == pages[5]);
}

// Changes one bit of a byte of the file.
void Damage(const std::string& path, int64_t offset) {
  std::fstream file(path, std::ios::binary | std::ios::in | std::ios::out);
  file.seekg(offset);
  const int byte = file.get();
  file.seekp(offset);
  file.put(static_cast<char>(byte ^ 1));
}

// The first two pages in a row that are compressed: the number of the first one, and the
// offset of the second one's block, which begins with its length.
struct Pair {
  int64_t first = 0;
  int64_t second_block = 0;
};

Pair FindPair(const std::string& path) {
  Chunk chunk(path);
  bool was_compressed = false;
  for (int64_t page = 0;; ++page) {
    const PageHeader* header = chunk.pages().Next();
    REQUIRE(header != nullptr);
    if (was_compressed && header->is_compressed) {
      return {.first = page - 1,
              .second_block = chunk.pages().page_offset() + header->header_bytes +
                              header->definition_level_bytes};
    }
    was_compressed = header->is_compressed;
  }
}

TEST_CASE("a damaged page is an error when it is read, not with the page before") {
  for (const bool second_version : {false, true}) {
    for (const bool has_checksums : {false, true}) {
      FileRecipe recipe = PairRecipe(second_version);
      recipe.has_checksums = has_checksums;
      const DataSet data(recipe, 1);
      const Pair pair = FindPair(data.path(0));
      Damage(data.path(0), pair.second_block);
      Chunk chunk(data.path(0));
      for (int64_t page = 0; page <= pair.first; ++page) CHECK(chunk.Read(true));
      REQUIRE(chunk.pages().Next() != nullptr);
      const auto error = testing::Caught([&] { chunk.pages().ReadDataPage(true); });
      REQUIRE(error);
      CHECK(error->kind() == ErrorKind::kCorruptFile);
      CHECK(testing::Mentions(*error, "CRC") == has_checksums);
    }
  }
}

TEST_CASE("a page decompressed with the one before outlives its task") {
  for (const bool second_version : {false, true}) {
    const DataSet data(PairRecipe(second_version), 1);
    Chunk whole(data.path(0));
    const auto pages = whole.ReadAll(false);
    Chunk chunk(data.path(0));
    for (size_t page = 0; page < pages.size(); ++page) {
      CHECK(chunk.Read(true) == pages[page]);
      chunk.BeginTask();
    }
  }
}

TEST_CASE("two pages at once are within the limit of one") {
  const DataSet data(PairRecipe(false), 1);
  const ParquetFile file(PlannedFile{data.path(0), {}});
  for (const bool fits : {false, true}) {
    ColumnBuffers buffers;
    const int64_t num_bytes = [&] {
      ColumnPages pages(file, 0, 0, {.max_page_bytes = kNoLimit}, &buffers);
      DecodeScratch scratch;
      pages.BeginTask(&scratch, {0, 1000});
      const int64_t first = pages.Next()->uncompressed_bytes;
      return first + pages.Next()->uncompressed_bytes;
    }();
    ColumnPages pages(file, 0, 0, {.max_page_bytes = num_bytes - (fits ? 0 : 1)},
                      &buffers);
    DecodeScratch scratch;
    pages.BeginTask(&scratch, {0, 1000});
    pages.Next();
    pages.ReadDataPage(true);
    CHECK((buffers.next_page.capacity() > 0) == fits);
  }
}

}  // namespace
}  // namespace torchparquet
