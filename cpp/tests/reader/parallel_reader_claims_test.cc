#include <doctest/doctest.h>

#include <algorithm>
#include <memory>
#include <numeric>
#include <thread>
#include <vector>

#include "caught.h"
#include "draws.h"
#include "reader/parallel_reader.h"
#include "recipes/reading.h"
#include "tried.h"

namespace torchparquet {
namespace {

using testing::DataSet;
using testing::Draws;
using testing::Throws;

constexpr std::chrono::milliseconds kTooLong{60'000};

// Twelve row groups in four files; some have no rows.
DataSet MakeDataSet() {
  return DataSet(
      {.columns = {{"a", "int64"}, {"b", "float32"}}, .row_group_rows = {300, 0, 47}}, 4);
}

// The chunks of the reader as the order of an epoch that is claimed.
ReaderParts Claimed(ReaderParts spec, int64_t skipped_rows = 0) {
  auto groups = std::make_shared<RowGroups>();
  auto order = std::make_shared<EpochOrder>();
  for (const Chunk& chunk : spec.share.chunks) {
    order->row_group.push_back(std::ssize(groups->file));
    order->begin.push_back(chunk.rows.begin);
    order->num_rows.push_back(chunk.rows.num_rows);
    groups->file.push_back(chunk.file);
    groups->in_file.push_back(chunk.rows.row_group);
    groups->first_row.push_back(chunk.first_row_id);
  }
  order->row_groups = std::move(groups);
  spec.share.chunks.clear();
  spec.share.order = std::move(order);
  spec.share.skipped_rows = skipped_rows;
  spec.share.claims = std::make_shared<Claims>();
  return spec;
}

// The row ids of batches, and of each its number of rows.
struct Found {
  std::vector<int64_t> ids;
  std::vector<int64_t> sizes;
};

void TakeOne(ParallelReader& reader, const ReaderParts& spec, Found* found) {
  const auto taken = reader.Next(kTooLong);
  REQUIRE(taken.status == BatchRing::TakeStatus::kTaken);
  const auto field = static_cast<size_t>(spec.row_id_field);
  const auto* ids = reinterpret_cast<const int64_t*>(
      taken.memory.data + reader.layout().fields[field].values_offset);
  found->ids.insert(found->ids.end(), ids, ids + taken.num_rows);
  found->sizes.push_back(taken.num_rows);
}

TEST_CASE("claims are read in their order, in batches across them, to their end") {
  Draws draws(901);
  const DataSet data = MakeDataSet();
  for (int trial = 0; trial < testing::NumTried(60); ++trial) {
    const int64_t batch_rows = draws.OneIn(4) ? 0 : draws.Between(1, 400);
    const int64_t skipped = draws.OneIn(2) ? 0 : draws.Below(350);
    const ReaderParts spec = Claimed(data.Spec(batch_rows, draws.Between(1, 4)), skipped);
    const EpochOrder& order = *spec.share.order;
    std::vector<int64_t> positions(static_cast<size_t>(order.size()));
    std::iota(positions.begin(), positions.end(), 0);
    for (size_t i = positions.size(); i > 1; --i) {
      std::swap(positions[i - 1],
                positions[static_cast<size_t>(draws.Below(static_cast<int64_t>(i)))]);
    }
    positions.resize(static_cast<size_t>(draws.Below(13)));
    ParallelReader reader(ReaderSpec{spec});
    Found found;
    Found expected;
    int64_t left = skipped;
    int64_t num_claimed = 0;
    for (const int64_t position : positions) {
      const Chunk chunk = order.At(position);
      const int64_t cut = std::min(left, chunk.rows.num_rows);
      left -= cut;
      const int64_t brought = chunk.rows.num_rows - cut;
      const int64_t number = reader.num_claims();
      for (int i = draws.OneIn(3) ? 2 : 1; i > 0; --i) reader.Claim(number, position);
      num_claimed += brought;
      for (int64_t i = cut; i < chunk.rows.num_rows; ++i) {
        expected.ids.push_back(chunk.first_row_id + i);
      }
      if (batch_rows == 0 && brought > 0) expected.sizes.push_back(brought);
      // It is content with what holds the next batch and one row group more.
      const int64_t next_end = std::ssize(found.ids) + std::max<int64_t>(batch_rows, 1);
      const bool holds_it = num_claimed - brought >= next_end;
      CHECK(reader.wants_claim() == !holds_it);
      if (holds_it && draws.OneIn(2)) TakeOne(reader, spec, &found);
    }
    const bool drops_last = draws.OneIn(2);
    reader.EndClaims(drops_last);
    for (int64_t rest = num_claimed; batch_rows > 0 && rest > 0; rest -= batch_rows) {
      if (rest >= batch_rows || !drops_last) {
        expected.sizes.push_back(std::min(rest, batch_rows));
      } else {
        expected.ids.resize(expected.ids.size() - static_cast<size_t>(rest));
      }
    }
    while (found.sizes.size() < expected.sizes.size()) TakeOne(reader, spec, &found);
    CHECK(reader.Next(kTooLong).status == BatchRing::TakeStatus::kEnded);
    CHECK(found.ids == expected.ids);
    CHECK(found.sizes == expected.sizes);
  }
}

TEST_CASE("a reader stops while it waits for claims") {
  const DataSet data = MakeDataSet();
  for (const int64_t num_claims : {0, 1, 2}) {
    ParallelReader reader(ReaderSpec{Claimed(data.Spec(1000, 3))});
    std::jthread waiting(
        [&] { CHECK(Throws(ErrorKind::kStopped, [&] { reader.Next(kTooLong); })); });
    for (int64_t i = 0; i < num_claims; ++i) reader.Claim(i, i);
    reader.Stop();
  }
}

TEST_CASE("an end that comes while others read cuts the open batch") {
  const DataSet data = MakeDataSet();
  for (int trial = 0; trial < testing::NumTried(200); ++trial) {
    const ReaderParts spec = Claimed(data.Spec(1000, 3));
    ParallelReader reader(ReaderSpec{spec});
    reader.Claim(0, 0);
    std::jthread ending([&] { reader.EndClaims(); });
    Found found;
    TakeOne(reader, spec, &found);
    CHECK(found.sizes == std::vector<int64_t>{300});
    CHECK(reader.Next(kTooLong).status == BatchRing::TakeStatus::kEnded);
  }
}

TEST_CASE("claims that cannot be are refused") {
  const DataSet data = MakeDataSet();
  ParallelReader reader(ReaderSpec{Claimed(data.Spec(10, 1))});
  for (const int64_t position : {-1, 12}) {
    CHECK(Throws(ErrorKind::kInvalidArgument, [&] { reader.Claim(0, position); }));
  }
  ParallelReader dealt(ReaderSpec{data.Spec(10, 1)});
  CHECK(Throws(ErrorKind::kInvalidArgument, [&] { dealt.Claim(0, 0); }));
  ReaderParts beside = Claimed(data.Spec(10, 1));
  beside.beside = {data.Spec(10, 1).share};
  CHECK(Throws(ErrorKind::kInvalidArgument, [&] { ReaderSpec{beside}; }));
}

}  // namespace
}  // namespace torchparquet
