#include "kernels/shuffle/records.h"

#include <doctest/doctest.h>

#include <cstddef>
#include <cstdint>
#include <vector>

#include "draws.h"
#include "exact_buffer.h"
#include "kernels/xxhash64.h"

namespace torchparquet::kernels {
namespace {

using testing::Draws;
using testing::ExactBuffer;
using testing::RandomBytes;

uint64_t AddressOf(const uint8_t* bytes) { return reinterpret_cast<uint64_t>(bytes); }

TEST_CASE("gathered records are the rows that were packed") {
  Draws draws(3);
  for (int round = 0; round < 200; ++round) {
    const int64_t num_rows = draws.Between(1, 200);
    std::vector<ExactBuffer<uint8_t>> values;
    std::vector<RecordColumn> columns;
    int64_t record_bytes = 0;
    const bool are_words = draws.OneIn(2);
    for (int64_t i = draws.Between(1, 10); i > 0; --i) {
      const int64_t bytes = are_words && i != 2 ? 4 : draws.Between(1, 20);
      const auto random = RandomBytes(draws, num_rows * bytes);
      values.emplace_back(random);
      columns.push_back({values.back().data(), bytes, record_bytes});
      record_bytes += bytes;
    }
    ExactBuffer<uint8_t> records(static_cast<size_t>(num_rows * record_bytes));
    PackRecords(columns, num_rows, record_bytes, records.data());
    std::vector<int64_t> rows;
    std::vector<uint64_t> addresses;
    for (int64_t i = draws.Between(0, 200); i > 0; --i) {
      rows.push_back(draws.Between(0, num_rows - 1));
      addresses.push_back(AddressOf(records.data() + rows.back() * record_bytes));
    }
    std::vector<ExactBuffer<uint8_t>> found;
    std::vector<RecordColumn> wanted = columns;
    for (RecordColumn& column : wanted) {
      found.emplace_back(rows.size() * static_cast<size_t>(column.bytes));
      column.values = found.back().data();
    }
    GatherRecords(addresses, record_bytes, wanted);
    bool is_same = true;
    for (size_t i = 0; i < rows.size(); ++i) {
      for (size_t c = 0; c < columns.size(); ++c) {
        for (int64_t byte = 0; byte < columns[c].bytes; ++byte) {
          is_same &=
              wanted[c].values[static_cast<int64_t>(i) * columns[c].bytes + byte] ==
              columns[c].values[rows[i] * columns[c].bytes + byte];
        }
      }
    }
    CHECK(is_same);
  }
}

TEST_CASE("gathered items are those that rows were packed with") {
  const std::vector<int32_t> counts{2, 0, 1};
  std::vector<uint8_t> wide{1, 2, 3, 4, 5, 6};
  std::vector<uint8_t> narrow{7, 8, 9};
  const std::vector<RowItems> kinds{{wide.data(), 2, counts.data()},
                                    {narrow.data(), 1, counts.data()}};
  ExactBuffer<uint8_t> packed(9);
  PackItems(kinds, 3, packed.data());
  const std::vector<uint8_t> found(packed.data(), packed.data() + 9);
  CHECK(found == std::vector<uint8_t>{1, 2, 3, 4, 7, 8, 5, 6, 9});
  const std::vector<uint64_t> rows{AddressOf(packed.data() + 6),
                                   AddressOf(packed.data())};
  const std::vector<int32_t> counts_of_rows{1, 2};
  ExactBuffer<uint8_t> wide_out(6);
  ExactBuffer<uint8_t> narrow_out(3);
  const std::vector<RowItems> wanted{{wide_out.data(), 2, counts_of_rows.data()},
                                     {narrow_out.data(), 1, counts_of_rows.data()}};
  GatherItems(rows, wanted);
  CHECK(std::vector<uint8_t>(wide_out.data(), wide_out.data() + 6) ==
        std::vector<uint8_t>{5, 6, 1, 2, 3, 4});
  CHECK(std::vector<uint8_t>(narrow_out.data(), narrow_out.data() + 3) ==
        std::vector<uint8_t>{9, 7, 8});
}

TEST_CASE("rows are found in pieces of any sizes") {
  const std::vector<int64_t> firsts{0, 1, 100, 101, 130};
  const std::vector<uint64_t> bases{1000, 2000, 90000, 5};
  const std::vector<int64_t> rows{129, 0, 1, 99, 100, 101};
  std::vector<int64_t> pieces(rows.size());
  std::vector<uint64_t> records(rows.size());
  LocateRecords(rows, firsts, bases, 10, pieces.data(), records.data());
  CHECK(pieces == std::vector<int64_t>{3, 0, 1, 1, 2, 3});
  CHECK(records == std::vector<uint64_t>{285, 1000, 2000, 2980, 90000, 5});
}

TEST_CASE("digests are of blocks, the last of which is the rest") {
  const std::vector<uint8_t> bytes{1, 2, 3, 4, 5};
  const std::vector<uint64_t> digests = DigestsOfBlocks(bytes, 2);
  REQUIRE(digests.size() == 3);
  CHECK(digests[1] == XxHash64(std::vector<uint8_t>{3, 4}));
  CHECK(digests[2] == XxHash64(std::vector<uint8_t>{5}));
  CHECK(DigestsOfBlocks({}, 2).empty());
}

}  // namespace
}  // namespace torchparquet::kernels
