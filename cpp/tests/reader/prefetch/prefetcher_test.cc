#include "reader/prefetch/prefetcher.h"

#include <doctest/doctest.h>

#include <atomic>
#include <cstdint>
#include <functional>
#include <future>
#include <map>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "caught.h"
#include "draws.h"
#include "recipes/reading.h"
#include "recipes/store.h"

namespace torchparquet {
namespace {

using testing::DataSet;
using testing::Draws;
using testing::PlannedIn;
using testing::Store;

// A prefetcher over all row groups of one file of two columns, one step each.
struct Setting {
  Setting(int64_t num_groups, int64_t budget_bytes, int64_t max_block_bytes,
          bool as_window = false)
      : data(
            {.columns = {{"a", "int64"}, {"b", "int64"}},
             .row_group_rows = std::vector<int64_t>(static_cast<size_t>(num_groups), 100),
             .page_rows = 10,
             .compressed = false},
            1),
        store(std::make_shared<Store>()),
        blocks(std::make_shared<RemoteBlocks>(store)),
        all_files(std::make_shared<ParquetFiles>(PlannedIn(data, store))),
        files(std::make_shared<ReaderFiles>(all_files, blocks)) {
    files->Open(0);
    num_footer_requests = store->num_started();
    for (int64_t group = 0; group < num_groups; ++group) steps.push_back({0, group, 100});
    prefetcher = Make(budget_bytes, max_block_bytes, as_window);
    Open();
  }

  std::unique_ptr<Prefetcher> Make(int64_t budget_bytes, int64_t max_block_bytes,
                                   bool as_window) {
    auto order = [this, as_window,
                  next = size_t{0}]() mutable -> std::optional<std::vector<ReadStep>> {
      if (next == steps.size()) return std::nullopt;
      if (next > 0 && before_next_step) before_next_step();
      if (!as_window) return std::vector{steps[next++]};
      next = steps.size();
      return steps;
    };
    return std::make_unique<Prefetcher>(
        Prefetcher::Parts{.files = files,
                          .blocks = blocks,
                          .columns = {{{"a"}}, {{"b"}}},
                          .next_steps = order,
                          .carried = carried,
                          .memory = std::make_shared<BufferPool>(budget_bytes),
                          .budget_bytes = budget_bytes,
                          .max_block_bytes = max_block_bytes,
                          .on_ready = [this] { ++num_ready; }});
  }

  // Goes on as the reader of the next epoch does.
  void BeginNext(int64_t budget_bytes, bool as_window = false) {
    prefetcher->Stop();
    handles.clear();
    blocks = std::make_shared<RemoteBlocks>(store);
    files = std::make_shared<ReaderFiles>(all_files, blocks);
    prefetcher = Make(budget_bytes, 1 << 20, as_window);
    Open();
  }

  // Opens the tasks of all steps, as a stream does before or after they are planned.
  void Open() {
    for (const ReadStep& step : steps) {
      handles[step.row_group] = prefetcher->Open(step);
    }
  }
  bool IsReady(int64_t group, int column) {
    return RemoteBlocks::IsReady(handles[group][static_cast<size_t>(column)]);
  }
  // Ends a task, as a thread does.
  void Done(int64_t group, int column) {
    handles[group][static_cast<size_t>(column)].reset();
    prefetcher->Advance();
  }

  ByteRange Chunk(int64_t group, int column) {
    return files->Open(0)->ChunkRange(group, column);
  }
  int64_t num_requests() const { return store->num_started() - num_footer_requests; }
  // Reads a column chunk as a column reader does: header by header.
  void Read(int64_t group, int column) {
    const ByteRange chunk = Chunk(group, column);
    const auto source = files->Open(0);
    std::vector<uint8_t> bytes(64);
    std::vector<uint8_t> expected(64);
    const LocalFile local(data.path(0), {});
    for (int64_t at = chunk.offset; at < chunk.end(); at += 64) {
      const int64_t num_bytes = std::min<int64_t>(64, chunk.end() - at);
      source->file().ReadAt(at, num_bytes, bytes.data());
      local.ReadAt(at, num_bytes, expected.data());
      CHECK(std::equal(bytes.begin(), bytes.begin() + num_bytes, expected.begin()));
    }
  }
  void AwaitAll() {
    while (blocks->totals().num_in_flight > 0) std::this_thread::yield();
  }
  // A thread of the store lets a request go after it has told its end.
  void AwaitNothingHeld() {
    while (blocks->totals().held_bytes > 0) std::this_thread::yield();
    CHECK(blocks->totals().held_bytes == 0);
  }

  const DataSet data;
  const std::shared_ptr<Store> store;
  std::shared_ptr<RemoteBlocks> blocks;
  const std::shared_ptr<ParquetFiles> all_files;
  std::shared_ptr<ReaderFiles> files;
  const std::shared_ptr<CarriedFetches> carried = std::make_shared<CarriedFetches>();
  std::vector<ReadStep> steps;
  std::atomic<int64_t> num_ready{0};
  std::function<void()> before_next_step;
  int64_t num_footer_requests = 0;
  std::unique_ptr<Prefetcher> prefetcher;
  std::map<int64_t, std::vector<RemoteBlocks::Handle>> handles;  // by row group
};

TEST_CASE("as much is held as the budget has room for, and more as tasks end") {
  Setting setting(6, 5'000, 1 << 20);
  const auto group_bytes = [&](int64_t group) {
    return setting.Chunk(group, 0).num_bytes + setting.Chunk(group, 1).num_bytes;
  };
  REQUIRE(group_bytes(0) < 2'500);
  REQUIRE(group_bytes(0) > 1'700);
  Prefetcher& prefetcher = *setting.prefetcher;
  prefetcher.Advance();
  setting.AwaitAll();
  CHECK(setting.num_requests() == 2);
  CHECK(setting.blocks->totals().held_bytes == group_bytes(0) + group_bytes(1));
  CHECK(setting.IsReady(0, 0));
  CHECK(setting.IsReady(1, 1));
  CHECK_FALSE(setting.IsReady(2, 0));
  // The request of both columns stays until both are done.
  setting.Done(0, 0);
  CHECK(setting.num_requests() == 2);
  setting.Done(0, 1);
  CHECK(setting.num_requests() == 3);
  for (const ReadStep& step : setting.steps) {
    if (step.row_group == 0) continue;
    setting.Done(step.row_group, 0);
    setting.Done(step.row_group, 1);
  }
  setting.AwaitNothingHeld();
}

TEST_CASE("what will not come is read by the task, once nothing else runs") {
  Setting setting(6, 5'000, 1 << 20);
  Prefetcher& prefetcher = *setting.prefetcher;
  prefetcher.Advance();
  setting.AwaitAll();
  CHECK_FALSE(setting.IsReady(5, 0));
  CHECK(prefetcher.is_idle());
  const int64_t before = setting.num_requests();
  setting.Read(5, 0);
  CHECK(setting.num_requests() > before);
  setting.Done(5, 0);
  setting.Done(5, 1);
  // It is not fetched again when its turn comes.
  const int64_t after = setting.num_requests();
  for (int64_t group = 0; group < 5; ++group) {
    setting.Done(group, 0);
    setting.Done(group, 1);
  }
  CHECK(setting.num_requests() == after + 3);
  setting.AwaitNothingHeld();
}

TEST_CASE("a row group beyond the budget goes block by block") {
  Setting setting(2, 600, 200);
  Prefetcher& prefetcher = *setting.prefetcher;
  prefetcher.Advance();
  setting.AwaitAll();
  CHECK(setting.blocks->totals().held_bytes <= 600);
  // The beginnings of both columns are there first.
  CHECK(setting.IsReady(0, 0));
  CHECK(setting.IsReady(0, 1));
  int64_t most = 0;
  for (int64_t group = 0; group < 2; ++group) {
    for (int column = 0; column < 2; ++column) {
      setting.Read(group, column);
      most = std::max(most, setting.blocks->totals().held_bytes.load());
      setting.Done(group, column);
    }
  }
  CHECK(most <= 600);
  setting.AwaitAll();
  setting.AwaitNothingHeld();
}

// As an offset index does that a hostile footer places at the end of a column chunk.
TEST_CASE("what is read to plan a step may be the end of a block that is dropped then") {
  Setting setting(3, 3'000, 1 << 20);
  REQUIRE(setting.Chunk(0, 0).num_bytes + setting.Chunk(0, 1).num_bytes > 1'500);
  setting.before_next_step = [&] { setting.Read(0, 1); };
  setting.prefetcher->Advance();
  setting.AwaitAll();
  setting.Done(0, 0);
  setting.AwaitAll();
  CHECK(setting.IsReady(1, 0));
}

TEST_CASE("no call is lost to one that is under way") {
  constexpr int64_t kNumGroups = 200;
  Setting setting(kNumGroups, 5'000, 1 << 20);
  setting.prefetcher->Advance();
  for (int64_t group = 0; group < kNumGroups; ++group) {
    // Then the threads of the store hold nothing any more.
    while (setting.num_ready < setting.num_requests()) std::this_thread::yield();
    std::atomic<int> num_begun = 0;
    std::vector<std::thread> threads;
    for (int column = 0; column < 2; ++column) {
      threads.emplace_back([&, column] {
        ++num_begun;
        while (num_begun < 2) continue;
        setting.Done(group, column);
      });
    }
    for (std::thread& thread : threads) thread.join();
    // Both ends made room, and the last look was after both.
    const int64_t num_requests = setting.num_requests();
    setting.prefetcher->Advance();
    CHECK(setting.num_requests() == num_requests);
  }
  CHECK(setting.prefetcher->has_asked_for_all());
  setting.AwaitAll();
  setting.AwaitNothingHeld();
}

TEST_CASE("a footer read together with the end of a held block leaves it held") {
  Setting setting(2, 600, 200);
  setting.prefetcher->Advance();
  setting.AwaitAll();
  const int64_t held_bytes = setting.blocks->totals().held_bytes;
  const int64_t num_requests = setting.num_requests();
  const auto file = setting.files->Open(0);
  for (int column = 0; column < 2; ++column) {
    const ByteRange chunk = setting.Chunk(0, column);
    std::vector<uint8_t> bytes(200);
    file->file().LookAt(chunk.offset, 200, bytes.data());
  }
  CHECK(setting.blocks->totals().held_bytes == held_bytes);
  CHECK(setting.num_requests() == num_requests);
  setting.Read(0, 0);
  CHECK(setting.num_requests() > num_requests);  // room for more, as blocks were passed
}

TEST_CASE("a window beyond the budget goes column by column") {
  Setting setting(6, 4'000, 1 << 20, true);
  Prefetcher& prefetcher = *setting.prefetcher;
  prefetcher.Advance();
  setting.AwaitAll();
  CHECK(setting.IsReady(2, 0));
  CHECK_FALSE(setting.IsReady(0, 1));
  for (int column = 0; column < 2; ++column) {
    for (const ReadStep& step : setting.steps) {
      setting.Read(step.row_group, column);
      setting.Done(step.row_group, column);
    }
  }
  CHECK(setting.num_requests() == 12);
  setting.AwaitNothingHeld();
}

TEST_CASE(
    "tasks that are done before bytes come free the budget and cancel the request") {
  Setting setting(6, 5'000, 1 << 20);
  setting.store->Stall();
  Prefetcher& prefetcher = *setting.prefetcher;
  prefetcher.Advance();
  CHECK(setting.blocks->totals().num_in_flight == 2);
  for (const ReadStep& step : setting.steps) {
    setting.Done(step.row_group, 0);
    setting.Done(step.row_group, 1);
  }
  setting.AwaitNothingHeld();
  CHECK(setting.blocks->totals().num_in_flight == 0);
}

TEST_CASE("footers of files to come are asked for together, and once") {
  const DataSet data({.columns = {{"a", "int64"}}, .row_group_rows = {100}}, 20);
  const auto store = std::make_shared<Store>();
  const auto blocks = std::make_shared<RemoteBlocks>(store);
  const auto files = std::make_shared<ReaderFiles>(
      std::make_shared<ParquetFiles>(PlannedIn(data, store)), blocks);
  int64_t next = 0;
  Prefetcher prefetcher({.files = files,
                         .blocks = blocks,
                         .columns = {{{"a"}}},
                         .next_steps = [&]() -> std::optional<std::vector<ReadStep>> {
                           if (next == 20) return std::nullopt;
                           return std::vector{ReadStep{next++, 0, 100}};
                         },
                         .carried = std::make_shared<CarriedFetches>(),
                         .memory = std::make_shared<BufferPool>(1 << 20),
                         .budget_bytes = 1 << 20,
                         .on_ready = [] {}});
  store->Stall();
  std::thread advance([&] { prefetcher.Advance(); });
  store->AwaitStarted(20);
  store->Release();
  advance.join();
  CHECK(store->num_started() == 40);
  for (int64_t file = 0; file < 20; ++file) CHECK(files->has_footer(file));
}

TEST_CASE("nobody waits for a thread that waits for a footer, and it wakes the others") {
  Setting setting(6, 5'000, 1 << 20);
  std::promise<void> reached;
  std::promise<void> allowed;
  bool has_waited = false;
  setting.before_next_step = [&] {
    if (std::exchange(has_waited, true)) return;
    reached.set_value();
    allowed.get_future().wait();
  };
  Prefetcher& prefetcher = *setting.prefetcher;
  std::thread other([&] { prefetcher.Advance(); });
  reached.get_future().wait();
  prefetcher.Advance();
  prefetcher.Announce({{setting.steps[0]}});
  for (const ReadStep& step : setting.steps) {
    for (int column = 0; column < 2; ++column) setting.Done(step.row_group, column);
  }
  // The other thread may ask for the bytes.
  CHECK_FALSE(prefetcher.is_idle());
  allowed.set_value();
  other.join();
  CHECK(prefetcher.is_idle());
  CHECK(setting.num_ready == 1);  // not by a fetch: nothing was left to ask for
}

TEST_CASE("a call that comes after the look is answered by another look") {
  Setting setting(2, 100'000, 1 << 20);
  setting.before_next_step = [&] { setting.prefetcher->Announce({{setting.steps[0]}}); };
  setting.prefetcher->Advance();
  CHECK(setting.carried->num_bytes() > 0);
}

TEST_CASE("the next reader finds what it reads first") {
  Setting setting(6, 100'000, 1 << 20);
  const auto read_all = [&] {
    for (const ReadStep& step : setting.steps) {
      for (int column = 0; column < 2; ++column) {
        setting.Read(step.row_group, column);
        setting.Done(step.row_group, column);
      }
    }
  };
  setting.prefetcher->Advance();
  CHECK(setting.prefetcher->has_asked_for_all());
  CHECK(setting.num_requests() == 6);
  // A quarter of the budget has room for all of them.
  setting.prefetcher->Announce(
      {{setting.steps[4]}, {setting.steps[1], setting.steps[0]}});
  CHECK(setting.num_requests() == 9);
  read_all();
  setting.AwaitNothingHeld();

  std::swap(setting.steps[0], setting.steps[4]);
  setting.BeginNext(100'000);
  setting.prefetcher->Advance();
  setting.AwaitAll();
  // Two steps were announced: the third one that is read, which came along, was dropped.
  CHECK(setting.num_requests() == 9 + 6 - 2);
  read_all();
  CHECK(setting.num_requests() == 9 + 6 - 2);
  setting.AwaitNothingHeld();
}

TEST_CASE("a window beyond the budget finds whole requests of the epoch before") {
  // Announced while there is room for all, and read by a reader with less.
  Setting setting(6, 100'000, 1 << 20);
  setting.prefetcher->Advance();
  setting.AwaitAll();
  setting.store->Stall();
  setting.prefetcher->Announce({{setting.steps[0], setting.steps[0], setting.steps[1]}});
  CHECK(setting.num_requests() == 8);
  setting.BeginNext(12'000, /*as_window=*/true);
  setting.prefetcher->Advance();
  setting.store->Release();
  for (int column = 0; column < 2; ++column) {
    for (const ReadStep& step : setting.steps) {
      while (!setting.IsReady(step.row_group, column) && !setting.prefetcher->is_idle()) {
        std::this_thread::yield();
      }
      setting.Read(step.row_group, column);
      setting.Done(step.row_group, column);
    }
  }
  setting.AwaitAll();
  // Columns of other row groups come one by one.
  CHECK(setting.num_requests() == 8 + 4 * 2);
  setting.AwaitNothingHeld();
}

TEST_CASE("a reader that was told of no room for more leaves nothing") {
  Setting setting(6, 5'000, 1 << 20);  // of which a quarter is less than a row group
  setting.prefetcher->Advance();
  CHECK_FALSE(setting.prefetcher->has_asked_for_all());
  setting.prefetcher->Announce({{setting.steps[0]}});
  for (const ReadStep& step : setting.steps) {
    setting.Done(step.row_group, 0);
    setting.Done(step.row_group, 1);
  }
  CHECK(setting.prefetcher->has_asked_for_all());
  CHECK(setting.carried->num_bytes() == 0);
}

TEST_CASE("what was asked for ahead ends with its memory") {
  Setting setting(2, 100'000, 1 << 20);
  setting.prefetcher->Advance();
  setting.AwaitAll();
  setting.store->Stall();
  setting.prefetcher->Announce({{setting.steps[0]}, {setting.steps[1]}});
  CHECK(setting.num_requests() == 4);
  // The store would not end with a fetch that waits.
}

TEST_CASE("a stopped prefetcher ends waits and calls nobody") {
  Setting setting(6, 5'000, 1 << 20);
  setting.store->Stall();
  setting.prefetcher->Advance();
  setting.prefetcher->Stop();
  const int64_t num_ready = setting.num_ready;
  CHECK(testing::Throws(ErrorKind::kStopped, [&] { setting.Read(0, 0); }));
  setting.store->Release();
  setting.prefetcher->Advance();
  setting.Done(0, 0);
  CHECK(setting.num_ready == num_ready);
}

}  // namespace
}  // namespace torchparquet
