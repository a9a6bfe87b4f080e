#include "format/parsed_footer.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <memory>
#include <string>
#include <vector>

#include "bridge/loaded_library.h"
#include "draws.h"
#include "format/footer_bytes.h"
#include "recipes/parquet_recipe.h"
#include "recipes/reading.h"

namespace torchparquet {
namespace {

using testing::DataSet;
using testing::Draws;
using Bytes = std::vector<uint8_t>;

Bytes ReadAll(const std::filesystem::path& path) {
  std::ifstream stream(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(stream), {}};
}

// The scan of a footer that Arrow reads too.
struct Compared {
  bool is_scanned = false;
  int64_t num_chunks = 0;  // that both describe
};

// Checks that the scan of a plain file's footer, if there is one, says of every column
// chunk what Arrow says.
Compared Compare(const Bytes& content) {
  const MemoryFile file("file", content, {});
  const FooterBytes bytes(file);
  const auto scan = bytes.Scan();
  if (!scan || scan->may_have_old_writer) return {};
  std::unique_ptr<ArrowFile> arrow;
  FooterFacts facts;
  const Failure failure = Arrow().Open(file,
                                       {.file_bytes = file.num_bytes(),
                                        .footer_bytes = bytes.end().num_bytes,
                                        .page_buffer_bytes = 1 << 16},
                                       &arrow, &facts);
  if (failure) return {.is_scanned = true};
  CHECK_FALSE(facts.has_short_chunk_sizes);
  CHECK_FALSE(facts.has_wrong_compressed_flags);
  CHECK_FALSE(facts.has_encrypted_parts);
  std::vector<LeafColumn> leaves;
  for (const SchemaLeaf& leaf : facts.leaves) leaves.emplace_back().path = leaf.DotPath();
  const auto schema = std::make_shared<const Schema>(std::move(leaves));
  if (scan->chunks.size() != facts.row_groups.size() * facts.leaves.size()) {
    return {.is_scanned = true};
  }
  const ParsedFooter footer =
      FooterOf(*scan, bytes.end().num_bytes, file.identity(), schema);
  REQUIRE(footer.row_groups.size() == facts.row_groups.size());
  Compared compared{.is_scanned = true};
  for (size_t group = 0; group < facts.row_groups.size(); ++group) {
    CHECK(footer.row_groups[group].num_rows == facts.row_groups[group].num_rows);
    for (size_t column = 0; column < facts.leaves.size(); ++column) {
      ChunkFacts of_arrow;
      const auto number = static_cast<int>(group);
      if (arrow->chunks()->Describe(number, static_cast<int>(column), &of_arrow)) {
        continue;
      }
      ChunkFacts scanned;
      CHECK_FALSE(footer.Describe(number, static_cast<int>(column), &scanned));
      CHECK(scanned.data_page_offset == of_arrow.data_page_offset);
      CHECK(scanned.dictionary_page_offset == of_arrow.dictionary_page_offset);
      CHECK(scanned.compressed_bytes == of_arrow.compressed_bytes);
      CHECK(scanned.uncompressed_bytes == of_arrow.uncompressed_bytes);
      CHECK(scanned.num_values == of_arrow.num_values);
      CHECK(scanned.codec == of_arrow.codec);
      CHECK_FALSE(of_arrow.is_encrypted);
      ++compared.num_chunks;
    }
  }
  return compared;
}

TEST_CASE("a scan describes the column chunks of many writers as Arrow does") {
  const char* data = std::getenv("PARQUET_TEST_DATA");
  if (data == nullptr) {
    MESSAGE("PARQUET_TEST_DATA is not set: files of other writers are not compared");
    return;
  }
  int64_t num_scanned = 0;
  int64_t num_chunks = 0;
  for (const auto& entry : std::filesystem::directory_iterator(data)) {
    if (entry.path().extension() != ".parquet") continue;
    CAPTURE(entry.path().string());
    const Compared compared = Compare(ReadAll(entry.path()));
    num_scanned += compared.is_scanned;
    num_chunks += compared.num_chunks;
  }
  CHECK(num_scanned > 20);
  CHECK(num_chunks > 200);
}

TEST_CASE("a scan of a damaged footer describes what Arrow does, or nothing") {
  const DataSet data({.columns = {{"id", "int64"},
                                  {"x", "float32", testing::StoredAs::kDictionary, 3},
                                  {"s", "int32"}},
                      .row_group_rows = {50, 70}},
                     1);
  const Bytes sound = ReadAll(data.path(0));
  REQUIRE(Compare(sound).num_chunks == 6);
  const int64_t footer_begin =
      std::ssize(sound) - FooterBytes(MemoryFile("file", sound, {})).end().num_bytes - 8;
  Draws draws(5);
  int64_t num_scanned = 0;
  for (int round = 0; round < 5'000; ++round) {
    Bytes damaged = sound;
    for (int64_t left = draws.Between(1, 3); left > 0; --left) {
      const int64_t at = draws.Between(footer_begin, std::ssize(sound) - 9);
      damaged[static_cast<size_t>(at)] = static_cast<uint8_t>(draws.Bits());
    }
    num_scanned += Compare(damaged).num_chunks > 0;
  }
  CHECK(num_scanned > 500);
}

}  // namespace
}  // namespace torchparquet
