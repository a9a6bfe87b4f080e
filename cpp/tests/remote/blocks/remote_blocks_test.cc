#include "remote/blocks/remote_blocks.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <deque>
#include <memory>
#include <thread>
#include <utility>
#include <vector>

#include "caught.h"
#include "draws.h"

namespace torchparquet {
namespace {

using testing::Draws;
using testing::Throws;

constexpr int64_t kNumColumns = 3;
constexpr int64_t kBlockBytes = 100;
constexpr int64_t kRows = 10;
const std::vector<bool> kWhole(kNumColumns);

uint8_t ByteAt(int64_t offset) { return static_cast<uint8_t>(offset % 251); }

// Brings the bytes of one object when it is told to, or when a read waits for them.
class Origin : public Fetcher {
 public:
  void Hurry(const std::shared_ptr<Fetch>& fetch) override { Bring(fetch); }
  void Cancel(const std::shared_ptr<Fetch>& fetch) override {
    ++num_cancelled;
    fetch->Fail(Error(ErrorKind::kStopped, "cancelled"));
  }
  void Wake() override {}
  FetchStats stats() const override { return {}; }

  static void Bring(const std::shared_ptr<Fetch>& fetch) {
    if (fetch->is_over()) return;
    const ByteRange range = fetch->range();
    fetch->Prepare();
    for (int64_t i = 0; i < range.num_bytes; ++i) {
      fetch->out()[i] = ByteAt(range.offset + i);
    }
    fetch->Arrive(range.num_bytes);
  }
  void Bring(size_t number) const {
    if (const auto fetch = started[number].lock()) Bring(fetch);
  }
  int64_t num_alive() const {
    return std::ranges::count_if(started, [](const auto& one) { return !one.expired(); });
  }

  std::vector<std::weak_ptr<Fetch>> started;
  int64_t num_cancelled = 0;

 private:
  void DoStart(const std::shared_ptr<Fetch>& fetch) override { started.push_back(fetch); }
};

// Steps over the rows of some row groups, of which each column has three blocks. Several
// steps may read rows of one row group.
struct Setting {
  static std::vector<WantedBlock> BlocksOf(const StepPlace& step) {
    std::vector<WantedBlock> blocks;
    for (int64_t i = 0; i < 3 * kNumColumns; ++i) {
      const int64_t offset = (step.row_group * 3 * kNumColumns + i) * kBlockBytes;
      blocks.push_back({.range = {offset, kBlockBytes}, .columns = {i / 3}});
    }
    return blocks;
  }
  std::vector<WantedBlock> Want(const StepPlace& step) const {
    return table->Want(step, kRows, BlocksOf(step), kWhole);
  }
  // Asks for blocks in one request.
  void Ask(const std::vector<WantedBlock>& blocks) const {
    const int64_t begin = blocks.front().range.offset;
    const ByteRange range{begin, blocks.back().range.end() - begin};
    table->Begin(std::make_shared<Fetch>(object, range), blocks, /*is_cached=*/false);
  }
  std::vector<RemoteBlocks::Handle> Open(const StepPlace& step) const {
    return table->Open(step, kNumColumns, kRows);
  }
  void Read(const ByteRange& range) const {
    std::vector<uint8_t> bytes(static_cast<size_t>(range.num_bytes));
    table->Read(object, range, bytes.data());
    for (int64_t i = 0; i < range.num_bytes; ++i) {
      REQUIRE(bytes[static_cast<size_t>(i)] == ByteAt(range.offset + i));
    }
  }

  const std::shared_ptr<const RemoteObject> object =
      std::make_shared<RemoteObject>(RemoteObject{.path = "s3://bucket/a"});
  const std::shared_ptr<Origin> origin = std::make_shared<Origin>();
  const std::shared_ptr<RemoteBlocks> table = std::make_shared<RemoteBlocks>(origin);
};

// Whatever came of the tasks: they were opened before their step was planned or after,
// have read or not, and ended before or after the bytes came.
TEST_CASE("nothing is held once all handles are gone, whatever the order") {
  for (uint64_t seed = 0; seed < 300; ++seed) {
    CAPTURE(seed);
    Draws draws(seed);
    const Setting setting;
    std::deque<std::vector<WantedBlock>> waiting;
    std::vector<RemoteBlocks::Handle> handles;
    std::vector<StepPlace> steps;
    for (int64_t number = 0; number < 8; ++number) {
      steps.push_back({.row_group = number / 2, .begin = number * kRows});
    }
    size_t num_planned = 0;
    size_t num_opened = 0;
    while (num_planned < steps.size() || num_opened < steps.size() || !waiting.empty() ||
           !handles.empty()) {
      if (num_planned < steps.size() && draws.OneIn(3)) {
        const StepPlace& step = steps[num_planned++];
        auto blocks = setting.Want(step);
        if (draws.OneIn(3)) setting.table->DropWhenPassed(step, blocks);
        if (!blocks.empty()) waiting.push_back(std::move(blocks));
      }
      if (num_opened < steps.size() && draws.OneIn(3)) {
        for (auto& handle : setting.Open(steps[num_opened++])) {
          handles.push_back(std::move(handle));
        }
      }
      if (!waiting.empty() && draws.OneIn(2)) {
        setting.Ask(waiting.front());
        waiting.pop_front();
      }
      if (!setting.origin->started.empty() && draws.OneIn(2)) {
        const int64_t num_started = std::ssize(setting.origin->started);
        setting.origin->Bring(static_cast<size_t>(draws.Below(num_started)));
      }
      if (draws.OneIn(4)) setting.Read({draws.Below(36) * kBlockBytes, kBlockBytes});
      if (handles.empty() || draws.OneIn(2)) continue;
      handles.erase(handles.begin() + draws.Below(std::ssize(handles)));
    }
    CHECK(setting.table->totals().held_bytes == 0);
    CHECK(setting.table->totals().num_in_flight == 0);
    CHECK(setting.origin->num_alive() == 0);
  }
}

TEST_CASE("a column is ready when the last of its blocks is there") {
  const Setting setting;
  const StepPlace step;
  const auto early = setting.Open(step);
  CHECK_FALSE(RemoteBlocks::IsReady(early[0]));  // not planned yet
  const auto blocks =
      setting.table->Want(step, 2 * kRows, Setting::BlocksOf(step), kWhole);
  const auto late = setting.Open(step);
  for (const WantedBlock& block : blocks) setting.Ask({block});
  for (size_t i = 0; i <= blocks.size(); ++i) {
    for (size_t column = 0; column < kNumColumns; ++column) {
      CHECK(RemoteBlocks::IsReady(early[column]) == (i >= 3 * (column + 1)));
      CHECK(RemoteBlocks::IsReady(late[column]) == (i >= 3 * (column + 1)));
    }
    if (i < blocks.size()) setting.origin->Bring(i);
  }
}

// Tasks look without the table's lock.
TEST_CASE("a column is not ready while its blocks are planned") {
  const Setting setting;
  for (int64_t number = 0; number < 2000; ++number) {
    const StepPlace step{.row_group = number};
    const auto handles = setting.Open(step);
    std::atomic<bool> is_planned = false;
    std::atomic<bool> was_ready = false;
    std::thread task([&] {
      while (!is_planned) {
        if (RemoteBlocks::IsReady(handles[0])) was_ready = true;
      }
    });
    setting.Want(step);
    is_planned = true;
    task.join();
    REQUIRE_FALSE(was_ready);
  }
}

TEST_CASE("blocks stay until the last rows of a step are read") {
  const Setting setting;
  const StepPlace step;
  auto first = setting.Open(step);
  auto second = setting.Open(step);
  setting.Ask(setting.table->Want(step, 2 * kRows, Setting::BlocksOf(step), kWhole));
  setting.origin->Bring(0);
  first.clear();
  setting.Read({0, 3 * kNumColumns * kBlockBytes});
  CHECK(setting.origin->started.size() == 1);
  second.clear();
  CHECK(setting.origin->num_alive() == 0);
}

TEST_CASE("bytes that are borrowed stay, and count, as long as they are held") {
  const Setting setting;
  auto handles = setting.Open({});
  setting.Ask(setting.Want({}));
  auto borrowed = setting.table->Borrow(0, {310, 50});  // waits for the fetch
  REQUIRE(borrowed != nullptr);
  handles.clear();
  CHECK(setting.origin->num_alive() == 1);
  CHECK(setting.table->totals().held_bytes == 3 * kNumColumns * kBlockBytes);
  for (int64_t i = 0; i < 50 + kPaddingBytes; ++i) {
    REQUIRE(borrowed.get()[i] == ByteAt(310 + i));
  }
  borrowed.reset();
  CHECK(setting.origin->num_alive() == 0);
  CHECK(setting.table->totals().held_bytes == 0);
}

TEST_CASE("only what lies within one block that stays is borrowed") {
  const Setting setting;
  const auto handles = setting.Open({});
  CHECK(setting.table->Borrow(0, {0, 10}) == nullptr);  // no block
  const auto blocks = setting.Want({});
  CHECK(setting.table->Borrow(0, {0, 10}) == nullptr);  // not asked for
  setting.Ask(blocks);
  CHECK(setting.table->Borrow(0, {50, 51}) == nullptr);  // of two blocks
  CHECK(setting.table->Borrow(1, {50, 10}) == nullptr);  // of another file
  CHECK(setting.table->Borrow(0, {50, 50}) != nullptr);
  CHECK(setting.table->Borrow(0, {800, 100}) != nullptr);  // up to the fetch's end
  setting.table->DropWhenPassed({}, blocks);
  CHECK(setting.table->Borrow(0, {50, 50}) == nullptr);
}

TEST_CASE("bytes before some that are still to be written are not borrowed") {
  const Setting setting;
  const auto handles = setting.Open({});
  setting.Ask(setting.Want({}));
  const std::shared_ptr<Fetch> fetch = setting.origin->started[0].lock();
  fetch->Prepare();
  fetch->Arrive(100 + kPaddingBytes - 1);
  CHECK(setting.table->Borrow(0, {20, 80}) == nullptr);
  CHECK(setting.table->Borrow(0, {20, 79}) != nullptr);
}

TEST_CASE("the end of a fetch tells nothing of blocks that were asked for again") {
  const Setting setting;
  const StepPlace first{.begin = 0};
  const StepPlace second{.begin = kRows};
  auto of_first = setting.Open(first);
  const auto of_second = setting.Open(second);
  setting.Ask(setting.Want(first));
  const std::shared_ptr<Fetch> fetch = setting.origin->started[0].lock();
  of_first.clear();
  setting.Ask(setting.Want(second));
  Origin::Bring(fetch);
  CHECK_FALSE(RemoteBlocks::IsReady(of_second[0]));
  setting.origin->Bring(1);
  CHECK(RemoteBlocks::IsReady(of_second[0]));
}

TEST_CASE("a fetch that nobody wants any more is cancelled, once") {
  const Setting setting;
  auto handles = setting.Open({});
  setting.Ask(setting.Want({}));
  handles[0].reset();
  handles[2].reset();
  CHECK(setting.origin->num_cancelled == 0);
  CHECK(setting.table->totals().held_bytes == 3 * kNumColumns * kBlockBytes);
  handles[1].reset();
  CHECK(setting.origin->num_cancelled == 1);
  CHECK(setting.table->totals().num_in_flight == 0);
  CHECK(setting.table->totals().may_have_room);
}

TEST_CASE("steps of a row group share its blocks") {
  const Setting setting;
  const StepPlace first{.begin = 0};
  const StepPlace second{.begin = kRows};
  auto of_first = setting.Open(first);
  auto of_second = setting.Open(second);
  setting.Ask(setting.Want(first));
  CHECK(setting.Want(second).empty());
  setting.origin->Bring(0);
  of_first.clear();
  CHECK(RemoteBlocks::IsReady(of_second[1]));
  setting.Read({0, 3 * kNumColumns * kBlockBytes});
  CHECK(setting.origin->started.size() == 1);
}

TEST_CASE("what a reader left is used, and the rest goes with its pins") {
  const Setting setting;
  const auto fetch = std::make_shared<Fetch>(setting.object, ByteRange{0, 200});
  setting.origin->Start(fetch);
  auto pins = setting.table->Adopt(fetch, {{0, 100}, {100, 100}});
  auto handles = setting.Open({});
  const auto blocks = setting.Want({});
  CHECK(blocks.size() == 3 * kNumColumns - 2);
  pins.clear();
  CHECK(setting.origin->num_cancelled == 0);
  Origin::Bring(fetch);
  setting.Read({0, 200});
  CHECK(setting.origin->started.size() == 1);
  handles.clear();
  CHECK(setting.table->totals().held_bytes == 0);
}

TEST_CASE("a block that is held for no column counts for no budget") {
  const Setting setting;
  auto pin = setting.table->Hold(setting.object, {40, 100});
  CHECK(setting.table->totals().held_bytes == 0);
  CHECK(setting.table->totals().num_in_flight == 0);
  setting.Read({0, 200});  // what is before it and after it on demand
  CHECK(setting.origin->started.size() == 3);
  CHECK(setting.origin->num_alive() == 1);
  pin.reset();
  CHECK(setting.origin->num_alive() == 0);
}

TEST_CASE("a table that is stopped ends what is under way and lets tasks run") {
  const Setting setting;
  const auto handles = setting.Open({});
  setting.Ask(setting.Want({}));
  const auto pin = setting.table->Hold(setting.object, {5'000, 100});
  setting.table->Stop();
  CHECK(setting.origin->num_cancelled == 2);
  CHECK(RemoteBlocks::IsReady(handles[0]));
  CHECK(Throws(ErrorKind::kStopped, [&] { setting.Read({0, 100}); }));
  CHECK(setting.table->Hold(setting.object, {0, 100}) == nullptr);
}

}  // namespace
}  // namespace torchparquet
