#include "reader/prefetch/held_blocks.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <deque>
#include <map>
#include <memory>
#include <utility>
#include <vector>

#include "draws.h"

namespace torchparquet {
namespace {

using testing::Draws;

constexpr int64_t kNumColumns = 3;
constexpr int64_t kBlockBytes = 100;

// Steps over the rows of some row groups, of which each column has three blocks. Several
// steps may read rows of one row group.
struct Setting {
  explicit Setting(int64_t budget_bytes)
      : held({{{"a"}}, {{"b"}}, {{"c"}}}, budget_bytes,
             [this](const HeldBlocks::Place& place) { ++num_dropped[place]; }) {}

  static std::vector<WantedBlock> BlocksOf(const ReadStep& step) {
    std::vector<WantedBlock> blocks;
    for (int64_t i = 0; i < 3 * kNumColumns; ++i) {
      const int64_t offset = (step.row_group * 3 * kNumColumns + i) * kBlockBytes;
      blocks.push_back({.range = {offset, kBlockBytes}, .columns = {i / 3}});
    }
    return blocks;
  }

  // Asks for the blocks of a step in one request, if there is room.
  bool Ask(const std::vector<WantedBlock>& blocks) {
    const HeldBlocks::Wish wish{.num_bytes = std::ssize(blocks) * kBlockBytes};
    if (!held.HasRoomFor(wish)) return false;
    const ByteRange range{blocks.front().range.offset, wish.num_bytes};
    fetches.push_back(std::make_shared<Fetch>(object, range));
    const auto begun = held.Begin(0, blocks, wish, fetches.back(), /*for_cache=*/false);
    if (begun.request != nullptr) under_way.push_back(begun);
    return true;
  }
  void End(const HeldBlocks::Begun& begun) {
    held.End(0, begun.blocks, begun.request.get());
  }

  const std::shared_ptr<const RemoteObject> object =
      std::make_shared<RemoteObject>(RemoteObject{.path = "s3://bucket/a"});
  std::map<HeldBlocks::Place, int64_t> num_dropped;
  std::vector<std::shared_ptr<Fetch>> fetches;
  std::vector<HeldBlocks::Begun> under_way;
  HeldBlocks held;
};

// Every block is held from its request until the last column that wants it is done.
TEST_CASE("nothing is held once all steps are done, whatever the order") {
  for (uint64_t seed = 0; seed < 300; ++seed) {
    CAPTURE(seed);
    Draws draws(seed);
    const int64_t budget_bytes = draws.Between(1, 40) * kBlockBytes;
    Setting setting(budget_bytes);
    std::deque<std::vector<WantedBlock>> waiting;
    std::vector<std::pair<ReadStep, int64_t>> tasks;
    std::map<HeldBlocks::Place, int64_t> num_asked;
    int64_t begin = 0;
    for (int64_t number = 0; number < 8 || !tasks.empty() || !waiting.empty();) {
      const bool may_plan = number < 8 && (tasks.empty() || draws.OneIn(3));
      if (may_plan) {
        const ReadStep step{
            .row_group = number / 2, .num_rows = 10, .begin = begin += 10};
        ++number;
        auto blocks = setting.held.Want(step, Setting::BlocksOf(step), {});
        if (draws.OneIn(3)) setting.held.DropWhenPassed(step, blocks);
        for (const WantedBlock& block : blocks) ++num_asked[{0, block.range.offset}];
        if (!blocks.empty()) waiting.push_back(std::move(blocks));
        for (int64_t column = 0; column < kNumColumns; ++column) {
          tasks.emplace_back(step, column);
        }
      }
      if (!waiting.empty() && setting.Ask(waiting.front())) waiting.pop_front();
      CHECK(setting.held.totals().held_bytes <=
            std::max(budget_bytes, 3 * kNumColumns * kBlockBytes));
      if (!setting.under_way.empty() && draws.OneIn(2)) {
        setting.End(setting.under_way.back());
        setting.under_way.pop_back();
      }
      if (draws.OneIn(4)) setting.held.Passed({0, draws.Below(30) * kBlockBytes});
      if (tasks.empty() || draws.OneIn(2)) continue;
      const auto task = tasks.begin() + draws.Below(std::ssize(tasks));
      setting.held.Done(task->first, task->second);
      tasks.erase(task);
    }
    for (const auto& begun : std::exchange(setting.under_way, {})) setting.End(begun);
    CHECK(setting.held.totals().held_bytes == 0);
    CHECK(setting.held.totals().num_in_flight == 0);
    CHECK(setting.num_dropped == num_asked);
  }
}

TEST_CASE("a column is ready when the last of its blocks is there") {
  Setting setting(100 * kBlockBytes);
  const ReadStep step{.num_rows = 10};
  const auto blocks = setting.held.Want(step, Setting::BlocksOf(step), {});
  for (const WantedBlock& block : blocks) CHECK(setting.Ask({block}));
  for (size_t i = 0; i < blocks.size(); ++i) {
    for (int64_t column = 0; column < kNumColumns; ++column) {
      const bool is_there = static_cast<int64_t>(i) >= 3 * (column + 1);
      CHECK(setting.held.IsReady(step, column, false) == is_there);
    }
    setting.End(setting.under_way[i]);
  }
  CHECK(setting.held.IsReady(step, kNumColumns - 1, true));
}

TEST_CASE("the end of a fetch tells nothing of blocks that were asked for again") {
  Setting setting(100 * kBlockBytes);
  const ReadStep first{.num_rows = 10, .begin = 0};
  const ReadStep second{.num_rows = 10, .begin = 10};
  const auto ask_for = [&](const ReadStep& step) {
    const auto blocks = setting.held.Want(step, Setting::BlocksOf(step), {});
    CHECK(blocks.size() == 3 * kNumColumns);
    CHECK(setting.Ask(blocks));
  };
  ask_for(first);
  for (int64_t column = 0; column < kNumColumns; ++column) {
    setting.held.Done(first, column);
  }
  ask_for(second);
  setting.End(setting.under_way[0]);
  CHECK_FALSE(setting.held.IsReady(second, 0, true));
  setting.End(setting.under_way[1]);
  CHECK(setting.held.IsReady(second, 0, true));
}

TEST_CASE("fetches that nobody wants any more are told once") {
  Setting setting(100 * kBlockBytes);
  const ReadStep step{.num_rows = 10};
  CHECK(setting.Ask(setting.held.Want(step, Setting::BlocksOf(step), {})));
  setting.held.Done(step, 0);
  setting.held.Done(step, 2);
  CHECK(setting.held.TakeUnwanted().empty());
  setting.held.Done(step, 1);
  const auto unwanted = setting.held.TakeUnwanted();
  REQUIRE(unwanted.size() == 1);
  CHECK(unwanted.front() == setting.fetches.front());
  CHECK(setting.held.TakeUnwanted().empty());
}

}  // namespace
}  // namespace torchparquet
