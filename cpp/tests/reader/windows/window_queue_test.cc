#include "reader/windows/window_queue.h"

#include <doctest/doctest.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

namespace torchparquet {
namespace {

std::unique_ptr<OpenWindow> MakeWindow(int64_t num_chunks,
                                       std::vector<int64_t> num_gathers) {
  const std::vector<int64_t> chunk_rows(static_cast<size_t>(num_chunks), 10);
  ChunkWindow chunks;
  chunks.window = {
      .num_rows = 10 * num_chunks, .key = 1, .begin = 0, .end = 10 * num_chunks};
  for (const int64_t num_rows : chunk_rows) {
    chunks.chunks.push_back({.rows = {.num_rows = num_rows}});
  }
  std::vector<BatchRun> runs{{.batch = 0, .first_row = 0, .num_rows = 10 * num_chunks}};
  auto window =
      std::make_unique<OpenWindow>(std::move(chunks), chunk_rows, std::move(runs), 8,
                                   ScratchBuffer(), std::move(num_gathers));
  window->batches = {.begin = 0, .end = 1};
  return window;
}

TEST_CASE("each thread goes on with its column, and shares one where there are too few") {
  WindowQueue queue(2, {false, false}, 2);
  queue.Push(MakeWindow(3, {0, 0}));
  const auto first = queue.Take();
  const auto second = queue.Take();
  CHECK(first->index == 0);
  CHECK(second->index == 1);
  // Both columns are in work: the third thread helps the first.
  const auto helping = queue.Take();
  CHECK(helping->index == 0);
  CHECK(helping->part == 1);
  // A thread that is done takes a column that nobody works on.
  queue.Finish(*second);
  const auto next = queue.Take();
  CHECK(next->index == 1);
  CHECK(next->part == 1);
  CHECK(queue.num_running() == 3);
}

TEST_CASE("no column is begun that there is no room for") {
  WindowQueue queue(3, {false, false, false}, 1);
  queue.Push(MakeWindow(2, {0, 0, 0}));
  std::vector<WindowTask> tasks;
  for (int i = 0; i < 2; ++i) tasks.push_back(*queue.Take());
  CHECK(tasks[0].index == 0);
  CHECK(tasks[1].index == 0);
  CHECK_FALSE(queue.Take());
  CHECK_FALSE(queue.Finish(tasks[0]).frees_others);
  CHECK_FALSE(queue.Take());
  CHECK(queue.Finish(tasks[1]).frees_others);
  CHECK(queue.Take()->index == 1);
}

TEST_CASE("a column is gathered by several threads, once all of its chunks are decoded") {
  WindowQueue queue(1, {false}, 1);
  queue.Push(MakeWindow(2, {3}));
  const auto first = queue.Take();
  const auto last = queue.Take();
  CHECK_FALSE(queue.Finish(*last).frees_others);
  CHECK_FALSE(queue.Take());
  CHECK(queue.has_untaken());
  CHECK(queue.Finish(*first).frees_others);
  size_t next = 0;
  for (int i = 0; i < 3; ++i) {
    const auto task = queue.Take();
    CHECK(task->gathers());
    const auto [begin, end] = task->PartOf(10);
    CHECK(begin == next);
    next = end;
    CHECK((queue.Finish(*task).window != nullptr) == (i == 2));
  }
  CHECK(next == 10);
  CHECK(queue.empty());
}

TEST_CASE("a column that waited for the front comes after one that was begun") {
  WindowQueue queue(2, {true, false}, 2);
  queue.Push(MakeWindow(3, {0, 0}));
  const std::optional<int64_t> elsewhere = 7;
  const auto cells = queue.Take(elsewhere);
  CHECK(cells->index == 1);
  queue.Finish(*cells);
  const std::optional<int64_t> here = 0;
  CHECK(queue.Take(here)->index == 1);
  CHECK(queue.Take(here)->index == 0);
}

TEST_CASE("the window of the front begins a column where others have all the room") {
  WindowQueue queue(2, {true, true}, 1);
  queue.Push(MakeWindow(1, {0, 0}));
  auto later = MakeWindow(2, {0, 0});
  later->batches = {.begin = 1, .end = 2};
  const OpenWindow* const other = later.get();
  queue.Push(std::move(later));
  const std::optional<int64_t> later_batch = 1;
  CHECK(queue.Take(later_batch)->window == other);
  const std::optional<int64_t> here = 0;
  for (int64_t index = 0; index < 2; ++index) {
    const auto task = queue.Take(here);
    REQUIRE(task);
    CHECK(task->window != other);
    CHECK(task->index == index);
    CHECK_FALSE(queue.Take(here));
    queue.Finish(*task);
  }
}

TEST_CASE("a window is given back with its last task, and all are taken once") {
  WindowQueue queue(3, {false, true, false}, 2);
  queue.Push(MakeWindow(4, {0, 1, 0}));
  queue.Push(MakeWindow(2, {2, 0, 0}));
  std::vector<std::vector<int>> times(2, std::vector<int>(15));
  std::vector<const OpenWindow*> windows;
  int64_t num_ended = 0;
  std::vector<WindowTask> running;
  while (true) {
    const auto task = queue.Take(0);
    if (task) {
      if (windows.empty() || windows.back() != task->window)
        windows.push_back(task->window);
      const size_t number = task->window == windows.front() ? 0 : 1;
      ++times[number][static_cast<size_t>(task->index * 5 + task->part)];
      running.push_back(*task);
      if (running.size() < 3) continue;
    }
    if (running.empty()) break;
    if (queue.Finish(running.front()).window != nullptr) ++num_ended;
    running.erase(running.begin());
  }
  CHECK(num_ended == 2);
  CHECK(queue.empty());
  CHECK(times[0] == std::vector<int>{1, 1, 1, 1, 0, 1, 1, 1, 1, 1, 1, 1, 1, 1, 0});
  CHECK(times[1] == std::vector<int>{1, 1, 1, 1, 0, 1, 1, 0, 0, 0, 1, 1, 0, 0, 0});
}

}  // namespace
}  // namespace torchparquet
