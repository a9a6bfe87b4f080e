#include "reader/reader_plan.h"

#include <doctest/doctest.h>

#include <memory>
#include <string>
#include <utility>
#include <vector>

namespace torchparquet {
namespace {

// Columns of 8 bytes, each a field of its own.
ReaderParts Parts(int64_t num_columns, int64_t num_threads) {
  ReaderParts parts;
  parts.files =
      std::make_shared<ParquetFiles>(std::vector<PlannedFile>{PlannedFile{"x", {}}});
  parts.share.chunks = {{.rows = {.num_rows = 10'000'000}}};
  parts.batch_rows = 1'000;
  parts.num_threads = num_threads;
  for (int64_t column = 0; column < num_columns; ++column) {
    parts.fields.push_back({.item_bytes = 8});
    parts.columns.push_back(
        {.request = {.path = std::to_string(column), .kinds = {"int64"}},
         .field = column});
  }
  return parts;
}

int64_t NumParts(const ReaderParts& parts) {
  return MakeWorkSplit(ReaderSpec(parts)).num_parts;
}

TEST_CASE("rows are cut to two parts for each thread that has no column of its own") {
  CHECK(NumParts(Parts(1, 1)) == 1);
  CHECK(NumParts(Parts(1, 2)) == 4);
  CHECK(NumParts(Parts(1, 8)) == 16);
  CHECK(NumParts(Parts(3, 2)) == 2);
  CHECK(NumParts(Parts(4, 2)) == 1);
  CHECK(NumParts(Parts(100, 8)) == 1);
}

TEST_CASE("parts are several pages long") {
  ReaderParts parts = Parts(1, 4);
  CHECK(MakeWorkSplit(ReaderSpec(parts)).least_rows == (4 << 20) / 8);
  parts.fields[0].cell_items = 1'000;
  parts.columns[0].request.cell_items = 1'000;
  CHECK(MakeWorkSplit(ReaderSpec(parts)).least_rows == 60'000);
}

TEST_CASE("keys of paths are no work, and strings are some") {
  ReaderParts parts = Parts(2, 2);
  CHECK(NumParts(parts) == 2);
  parts.columns[1].file_bits = {7};
  CHECK(NumParts(parts) == 4);
  parts = Parts(1, 2);
  parts.columns[0].request.kinds = {"string"};
  parts.columns[0].request.num_offsets = parts.fields[0].num_offsets = 1;
  parts.fields[0].item_bytes = 8;
  CHECK(NumParts(parts) == 4);
}

TEST_CASE("lists are not cut") {
  ReaderParts parts = Parts(2, 4);
  REQUIRE(NumParts(parts) > 1);
  parts.columns[1].request.num_offsets = parts.fields[1].num_offsets = 1;
  CHECK(NumParts(parts) == 1);
  parts = Parts(2, 4);
  parts.columns[1].request.list_length = parts.fields[1].cell_items = 3;
  parts.columns[1].request.cell_items = 1;
  CHECK(NumParts(parts) == 1);
}

}  // namespace
}  // namespace torchparquet
