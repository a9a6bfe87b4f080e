#include <doctest/doctest.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <filesystem>
#include <thread>
#include <utility>
#include <vector>

#include "reader/parallel_reader.h"
#include "recipes/reading.h"

namespace torchparquet {
namespace {

using testing::Consumer;
using testing::DataSet;
using testing::FileRecipe;
using testing::StoredAs;

FileRecipe SomeColumns(bool compressed) {
  return {.columns = {{"id", "int64"},
                      {"label", "bool", StoredAs::kPlain, 4},
                      {"price", "float32", StoredAs::kDictionary, 7}},
          .row_group_rows = {2300, 1, 999, 640},
          .compressed = compressed};
}

CostSums SumOf(const ReaderStats& stats) {
  CostSums sum;
  for (const CostSums& column : stats.columns) sum.Add(column);
  return sum;
}

CostSums SumOfCodecs(const ReaderStats& stats) {
  CostSums sum;
  for (const auto& [codec, sums] : stats.codecs) sum.Add(sums);
  return sum;
}

TEST_CASE("columns and codecs say what was read, delivered and decompressed") {
  for (const bool compressed : {false, true}) {
    CAPTURE(compressed);
    const DataSet data(SomeColumns(compressed), 2);
    const ReaderParts spec = data.Spec(100, 3);
    Consumer consumer(data, spec);
    consumer.TakeAll();
    const ReaderStats stats = consumer.reader().stats();
    REQUIRE(std::ssize(stats.columns) == spec.num_tasks());
    const int64_t num_rows = data.num_rows();
    // A mask where there are nulls; then row ids and their validity.
    const std::vector<int64_t> row_bytes = {8, 1 + 1, 4 + 1, 8, 1};
    for (size_t i = 0; i < row_bytes.size(); ++i) {
      CHECK(stats.delivered_bytes[i] == num_rows * row_bytes[i]);
      CHECK((stats.columns[i].bytes_read > 0) == (i < 3));
      CHECK((stats.columns[i].bytes_decompressed > 0) == (compressed && i < 3));
    }
    // Of those that were handed out, the consumer may have some before it.
    consumer.reader().Stop();
    const ReaderStats used = consumer.reader().stats(/*num_unused=*/1);
    const int64_t last_rows = (num_rows - 1) % 100 + 1;
    CHECK(used.batches == stats.batches - 1);
    CHECK(used.rows == num_rows - last_rows);
    for (size_t i = 0; i < row_bytes.size(); ++i) {
      CHECK(used.delivered_bytes[i] == used.rows * row_bytes[i]);
    }
    const CostSums sum = SumOf(stats);
    const CostSums of_codecs = SumOfCodecs(stats);
    CHECK(stats.codecs.size() == 1);
    CHECK(of_codecs.bytes_read == sum.bytes_read);
    CHECK(of_codecs.bytes_decompressed == sum.bytes_decompressed);
    CHECK(of_codecs.decompress_time == sum.decompress_time);
    CHECK((sum.decompress_time.count() > 0) == compressed);
    CHECK((sum.num_decompressed > 0) == compressed);
    CHECK(sum.decode_time.count() > 0);
    CHECK(sum.read_time.count() > 0);
    CHECK(sum.open_time.count() > 0);
    int64_t file_bytes = 0;
    for (int64_t file = 0; file < 2; ++file) {
      file_bytes += static_cast<int64_t>(std::filesystem::file_size(data.path(file)));
    }
    // Without footers, and the four letters at the begin.
    CHECK(sum.bytes_read < file_bytes);
    CHECK(sum.bytes_read > file_bytes / 2);
    CHECK(stats.first_wait <= stats.consumer_wait);
    CHECK(stats.num_in_flight == 0);
    CHECK(stats.num_complete == 0);
  }
}

TEST_CASE("another thread may ask at any time, and no count falls") {
  const DataSet data(SomeColumns(true), 6);
  const ReaderParts spec = data.Spec(50, 2);
  Consumer consumer(data, spec);
  std::atomic<bool> is_done{false};
  bool has_fallen = false;
  int64_t most_in_flight = 0;
  std::thread watcher([&] {
    ReaderStats last = consumer.reader().stats();
    while (!is_done) {
      ReaderStats now = consumer.reader().stats();
      has_fallen |= now.rows < last.rows || now.batches < last.batches;
      has_fallen |= SumOf(now).bytes_read < SumOf(last).bytes_read;
      has_fallen |= SumOf(now).decode_time < SumOf(last).decode_time;
      has_fallen |= now.num_waits < last.num_waits;
      most_in_flight = std::max(most_in_flight, now.num_in_flight);
      last = std::move(now);
    }
  });
  consumer.TakeAll();
  is_done = true;
  watcher.join();
  CHECK_FALSE(has_fallen);
  CHECK(most_in_flight <= consumer.reader().max_slabs());
  CHECK(consumer.num_mismatches() == 0);
}

// The consumer takes a batch when the ring is full, so that threads wait for it alone.
TEST_CASE("threads that are ahead wait for the consumer") {
  const DataSet data(SomeColumns(true), 4);
  ReaderParts spec = data.Spec(100, 2);
  spec.max_memory_bytes = testing::MemoryFor(spec, 6);
  Consumer consumer(data, spec);
  const int64_t num_batches = consumer.reader().num_batches();
  REQUIRE(consumer.TakeOne());
  for (int64_t taken = 1; taken < num_batches; ++taken) {
    // A thread that waits is counted while it does.
    const auto waited = consumer.reader().stats().room_waits.for_consumer;
    while (true) {
      const ReaderStats now = consumer.reader().stats();
      if (now.num_complete == num_batches - taken) break;
      if (now.num_complete > 0 && now.room_waits.for_consumer > waited) break;
      std::this_thread::yield();
    }
    REQUIRE(consumer.TakeOne());
  }
  const ReaderStats stats = consumer.reader().stats();
  CHECK(stats.num_waits > 0);
  CHECK(stats.room_waits.for_consumer > std::chrono::nanoseconds(0));
}

}  // namespace
}  // namespace torchparquet
