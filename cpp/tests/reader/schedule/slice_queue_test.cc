#include "reader/schedule/slice_queue.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <map>
#include <set>
#include <utility>
#include <vector>

#include "draws.h"

namespace torchparquet {
namespace {

using testing::Draws;
using Choice = SliceQueue::Choice;

constexpr int64_t kPlenty = int64_t{1} << 40;
constexpr int64_t kBufferBytes = 1024;

// Counts the readers and buffers that the queue can hold.
struct Ledger {
  int64_t num_alive = 0;
  int64_t destroyed_bytes = 0;  // buffers that went with their reader
};

// A reader that reads nothing, of a column and a chunk that the test gives it.
class FakeReader : public ColumnReader {
 public:
  FakeReader(Ledger* ledger, ColumnBuffers buffers, int64_t num_bytes)
      : ColumnReader({}, {}, std::move(buffers)), ledger_(ledger) {
    this->buffers()->page.Reserve(static_cast<size_t>(num_bytes));
    ++ledger_->num_alive;
  }
  ~FakeReader() override {
    --ledger_->num_alive;
    ledger_->destroyed_bytes += held_bytes();
  }

  int64_t row() const override { return row_; }
  PagePlace place() const override { return place_; }
  int64_t restart_bytes() const override { return restart_bytes_; }
  // Stands in a page whose beginning takes reading so much.
  void MeetPage(int64_t number, int64_t num_bytes) {
    place_ = {.offset = 7 + number, .first_row = 0};
    restart_bytes_ = num_bytes;
  }

  // Stands at `row`, in a page that began some rows before it.
  void MoveTo(int64_t row) {
    row_ = row;
    place_ = PlaceFor(row);
  }
  static PagePlace PlaceFor(int64_t row) {
    return row < 5 ? PagePlace() : PagePlace{.offset = 1000 + row, .first_row = row - 5};
  }

  int64_t chunk_number = 0;
  int64_t column = 0;

 private:
  void ReadRows(const RowRange&, const ColumnTarget&, DecodeScratch*,
                DecodeProgress*) override {}

  Ledger* ledger_;
  int64_t row_ = 0;
  int64_t restart_bytes_ = 0;
  PagePlace place_;
};

bool Same(const PagePlace& a, const PagePlace& b) {
  return a.offset == b.offset && a.first_row == b.first_row;
}

// Slices of 10 rows each, chunk by chunk.
class Slices {
 public:
  OpenSlice Next(bool ends_chunk) {
    OpenSlice open;
    open.number = number_++;
    open.slice.chunk.rows = {.row_group = 0, .begin = row_, .num_rows = 10};
    open.slice.chunk_number = chunk_;
    open.slice.ends_chunk = ends_chunk;
    row_ += 10;
    if (ends_chunk) {
      ++chunk_;
      row_ = 0;
    }
    return open;
  }

 private:
  int64_t number_ = 0;
  int64_t chunk_ = 0;
  int64_t row_ = 0;
};

int64_t EndOf(const SliceTask& task) { return task.slice->slice.chunk.rows.end(); }

// Reads the task's rows, as a thread does.
void Run(SliceTask* task, Ledger* ledger, int64_t num_bytes = kBufferBytes) {
  if (task->reader == nullptr) {
    task->reader =
        std::make_unique<FakeReader>(ledger, std::move(task->buffers), num_bytes);
  }
  static_cast<FakeReader&>(*task->reader).MoveTo(EndOf(*task));
}

// A queue into which the slices of chunks have been pushed, each with that many slices.
struct Setting {
  Setting(int64_t num_tasks, int64_t max_held_bytes,
          const std::vector<int64_t>& chunk_slices)
      : queue(num_tasks, max_held_bytes) {
    Slices slices;
    for (const int64_t num_slices : chunk_slices) {
      for (int64_t i = 0; i < num_slices; ++i) {
        queue.Push(slices.Next(/*ends_chunk=*/i + 1 == num_slices));
      }
    }
  }

  SliceTask Take(Choice choice = Choice::kAny) {
    auto task = queue.Take(choice);
    REQUIRE(task);
    return std::move(*task);
  }
  // Takes a task, reads and finishes it. Returns what it began with.
  struct Begun {
    ColumnReader* reader;
    PagePlace place;
    int64_t buffer_bytes;
  };
  Begun TakeAndFinish() {
    SliceTask task = Take();
    const Begun begun{task.reader.get(), task.place, task.buffers.num_bytes()};
    Run(&task, &ledger);
    given_up = queue.Finish(std::move(task));
    return begun;
  }

  Ledger ledger;  // outlives the readers
  SliceQueue queue;
  SliceTask given_up;
};

TEST_CASE("tasks come slice by slice, column by column, each once") {
  Setting setting(3, kPlenty, {2, 1, 3});
  std::vector<SliceTask> tasks;
  for (int64_t number = 0; number < 6; ++number) {
    for (int64_t index = 0; index < 3; ++index) {
      tasks.push_back(setting.Take());
      CHECK(tasks.back().slice->number == number);
      CHECK(tasks.back().index == index);
      CHECK(setting.queue.num_running() == std::ssize(tasks));
    }
  }
  CHECK_FALSE(setting.queue.Take(Choice::kAny));
  CHECK_FALSE(setting.queue.empty());
  // From the last to the first: what is finished later is still there.
  while (!tasks.empty()) {
    CHECK_FALSE(setting.queue.empty());
    Run(&tasks.back(), &setting.ledger);
    setting.queue.Finish(std::move(tasks.back()));
    tasks.pop_back();
    CHECK(setting.queue.num_running() == std::ssize(tasks));
  }
  CHECK(setting.queue.empty());
}

TEST_CASE("a new queue is empty, and one whose tasks are all done") {
  SliceQueue queue(2, kPlenty);
  CHECK(queue.empty());
  CHECK(queue.num_running() == 0);
  CHECK_FALSE(queue.Take(Choice::kUnshared));
  CHECK_FALSE(queue.Take(Choice::kAny));
}

TEST_CASE("a column that runs in an earlier slice of its chunk is shared by kAny only") {
  Setting setting(2, kPlenty, {2, 1});
  SliceTask a0 = setting.Take(Choice::kUnshared);
  const SliceTask b0 = setting.Take(Choice::kUnshared);
  // Both columns run in the first slice: the next chunk's are the first unshared ones.
  const SliceTask other_chunk = setting.Take(Choice::kUnshared);
  CHECK(other_chunk.slice->number == 2);
  CHECK(other_chunk.index == 0);
  const SliceTask shared = setting.Take(Choice::kAny);
  CHECK(shared.slice->number == 1);
  CHECK(shared.index == 0);
  CHECK(shared.reader == nullptr);
  CHECK(setting.Take(Choice::kUnshared).slice->number == 2);
  CHECK_FALSE(setting.queue.Take(Choice::kUnshared));
  CHECK(setting.queue.num_running() == 5);
  CHECK(setting.Take(Choice::kAny).slice->number == 1);
  CHECK_FALSE(setting.queue.Take(Choice::kAny));
}

TEST_CASE("a column is free for the next slice as soon as it is finished") {
  Setting setting(2, kPlenty, {3});
  SliceTask a0 = setting.Take(Choice::kUnshared);
  const SliceTask b0 = setting.Take(Choice::kUnshared);
  CHECK_FALSE(setting.queue.Take(Choice::kUnshared));
  Run(&a0, &setting.ledger);
  setting.queue.Finish(std::move(a0));
  const SliceTask a1 = setting.Take(Choice::kUnshared);
  CHECK(a1.slice->number == 1);
  CHECK(a1.index == 0);
  CHECK_FALSE(setting.queue.Take(Choice::kUnshared));
}

TEST_CASE("a reader goes from slice to slice of its column and chunk") {
  Setting setting(2, kPlenty, {4});
  const auto a = setting.TakeAndFinish();
  CHECK(a.reader == nullptr);
  CHECK(Same(a.place, {}));
  CHECK(a.buffer_bytes == 0);
  const auto b = setting.TakeAndFinish();
  CHECK(b.reader == nullptr);
  ColumnReader* readers[2] = {};
  for (int64_t number = 1; number < 4; ++number) {
    for (ColumnReader*& reader : readers) {
      SliceTask task = setting.Take();
      REQUIRE(task.reader != nullptr);
      CHECK(task.reader->row() == 10 * number);
      if (number > 1) CHECK(task.reader.get() == reader);
      reader = task.reader.get();
      Run(&task, &setting.ledger);
      setting.given_up = setting.queue.Finish(std::move(task));
      CHECK((setting.given_up.reader == nullptr) == (number < 3));
      setting.given_up = {};
    }
    CHECK(readers[0] != readers[1]);
    CHECK(setting.ledger.num_alive == (number < 3 ? 2 : 0));
  }
  CHECK(setting.queue.empty());
}

TEST_CASE("at the end of a chunk its readers' buffers go to the next, latest first") {
  Setting setting(2, kPlenty, {1, 1, 1});
  SliceTask a = setting.Take();
  SliceTask b = setting.Take();
  Run(&a, &setting.ledger, 2048);
  Run(&b, &setting.ledger, 8192);
  setting.queue.Finish(std::move(a));
  setting.queue.Finish(std::move(b));
  CHECK(setting.ledger.num_alive == 0);
  CHECK(setting.ledger.destroyed_bytes == 0);
  SliceTask next_a = setting.Take();
  SliceTask next_b = setting.Take();
  for (const SliceTask* task : {&next_a, &next_b}) {
    CHECK(task->reader == nullptr);
    CHECK(Same(task->place, {}));  // nothing of the chunk before
  }
  CHECK(next_a.buffers.num_bytes() == 8192);
  CHECK(next_b.buffers.num_bytes() == 2048);
  CHECK(setting.Take().buffers.num_bytes() == 0);  // there were but two
}

TEST_CASE("a reader for which there is no room is given up and leaves its place") {
  Setting setting(2, kBufferBytes, {3});
  setting.TakeAndFinish();
  CHECK(setting.given_up.reader == nullptr);
  setting.TakeAndFinish();
  REQUIRE(setting.given_up.reader != nullptr);
  CHECK(setting.given_up.index == 1);
  setting.given_up = {};
  CHECK(setting.ledger.num_alive == 1);

  SliceTask kept = setting.Take();
  CHECK(kept.reader != nullptr);
  SliceTask anew = setting.Take();
  CHECK(anew.reader == nullptr);
  CHECK(Same(anew.place, FakeReader::PlaceFor(10)));
  // The first one's room is free while it runs.
  Run(&anew, &setting.ledger);
  CHECK(setting.queue.Finish(std::move(anew)).reader == nullptr);
  Run(&kept, &setting.ledger);
  CHECK(setting.queue.Finish(std::move(kept)).reader != nullptr);
  CHECK(Same(setting.Take().place, FakeReader::PlaceFor(20)));
  CHECK(setting.Take().reader != nullptr);
}

void RunInLongPage(SliceTask* task, Ledger* ledger, int64_t page = 0) {
  Run(task, ledger);
  static_cast<FakeReader&>(*task->reader).MeetPage(page, int64_t{100} << 20);
}

TEST_CASE("a column of long pages is read by one thread, in later chunks too") {
  Setting setting(2, kPlenty, {4, 2});
  SliceTask a0 = setting.Take();
  const SliceTask b0 = setting.Take();
  SliceTask a1 = setting.Take();  // no long page is known yet
  CHECK(a1.index == 0);
  const SliceTask b1 = setting.Take();
  RunInLongPage(&a0, &setting.ledger);
  setting.queue.Finish(std::move(a0));
  CHECK_FALSE(setting.queue.has_long_pages(0));  // it may end soon
  SliceTask a2 = setting.Take();
  CHECK(a2.slice->number == 2);
  RunInLongPage(&a1, &setting.ledger);
  setting.queue.Finish(std::move(a1));
  CHECK(setting.queue.has_long_pages(0));
  CHECK_FALSE(setting.queue.has_long_pages(1));
  CHECK(setting.Take().index == 1);  // of the third slice
  const SliceTask b3 = setting.Take();
  CHECK(b3.index == 1);
  CHECK(b3.slice->number == 3);
  Run(&a2, &setting.ledger);
  setting.queue.Finish(std::move(a2));
  const SliceTask a3 = setting.Take();
  CHECK(a3.index == 0);
  CHECK(a3.slice->number == 3);
  for (int64_t index = 0; index < 2; ++index) {
    const SliceTask next_chunk = setting.Take();
    CHECK(next_chunk.slice->number == 4);
    CHECK(next_chunk.index == index);
  }
  const SliceTask last = setting.Take();
  CHECK(last.slice->number == 5);
  CHECK(last.index == 1);
  CHECK_FALSE(setting.queue.Take(Choice::kAny));
}

TEST_CASE("a column with a long page in each slice is shared") {
  Setting setting(1, kPlenty, {4});
  for (int64_t page = 0; page < 3; ++page) {
    SliceTask task = setting.Take();
    RunInLongPage(&task, &setting.ledger, page);
    setting.queue.Finish(std::move(task));
  }
  CHECK_FALSE(setting.queue.has_long_pages(0));
}

TEST_CASE("without room one reader of a long page is kept, and no second one") {
  Setting setting(2, 0, {4});
  for (int64_t slice = 0; slice < 4; ++slice) {
    for (int64_t index = 0; index < 2; ++index) {
      SliceTask task = setting.Take();
      CHECK((task.reader != nullptr) == (slice > 0 && index == 0));
      RunInLongPage(&task, &setting.ledger);
      setting.given_up = setting.queue.Finish(std::move(task));
      CHECK(setting.queue.held_bytes() == (slice < 3 ? kBufferBytes : 0));
    }
  }
}

TEST_CASE("without room nothing is kept, and places lead on") {
  Setting setting(1, 0, {5, 2});
  for (int64_t number = 0; number < 7; ++number) {
    const auto begun = setting.TakeAndFinish();
    CHECK(begun.reader == nullptr);
    CHECK(begun.buffer_bytes == 0);
    CHECK(Same(begun.place,
               FakeReader::PlaceFor(number < 5 ? 10 * number : 10 * (number - 5))));
    setting.given_up = {};
    CHECK(setting.ledger.num_alive == 0);
  }
}

TEST_CASE("spare buffers take room from idle readers until they are used") {
  Setting setting(1, 2 * kBufferBytes, {1, 3});
  SliceTask last_of_chunk = setting.Take();
  SliceTask first = setting.Take();
  Run(&last_of_chunk, &setting.ledger, 2 * kBufferBytes);
  setting.queue.Finish(std::move(last_of_chunk));
  Run(&first, &setting.ledger);
  CHECK(setting.queue.Finish(std::move(first)).reader != nullptr);
  const auto second = setting.TakeAndFinish();
  CHECK(second.buffer_bytes == 2 * kBufferBytes);
  CHECK(Same(second.place, FakeReader::PlaceFor(10)));
  CHECK(setting.given_up.reader == nullptr);
  CHECK(setting.TakeAndFinish().reader != nullptr);
}

TEST_CASE("of two readers of a column the one further on is kept") {
  for (const bool earlier_first : {false, true}) {
    CAPTURE(earlier_first);
    Setting setting(1, kPlenty, {3, 1});
    SliceTask earlier = setting.Take();
    SliceTask later = setting.Take();
    Run(&earlier, &setting.ledger, 2048);
    Run(&later, &setting.ledger, 8192);
    const ColumnReader* further = later.reader.get();
    if (earlier_first) {
      setting.queue.Finish(std::move(earlier));
      setting.queue.Finish(std::move(later));
    } else {
      setting.queue.Finish(std::move(later));
      setting.queue.Finish(std::move(earlier));
    }
    CHECK(setting.ledger.num_alive == 1);
    const SliceTask next = setting.Take();
    CHECK(next.reader.get() == further);
    CHECK(next.reader->row() == 20);
    // The other's buffers were not lost.
    CHECK(setting.Take().buffers.num_bytes() == 2048);
  }
}

TEST_CASE("a reader at an earlier row does not replace a later known place") {
  for (const bool earlier_first : {false, true}) {
    Setting setting(1, 0, {3});
    SliceTask earlier = setting.Take();
    SliceTask later = setting.Take();
    Run(&earlier, &setting.ledger);
    Run(&later, &setting.ledger);
    if (earlier_first) std::swap(earlier, later);
    setting.queue.Finish(std::move(later));
    setting.queue.Finish(std::move(earlier));
    CHECK(Same(setting.Take().place, FakeReader::PlaceFor(20)));
  }
}

TEST_CASE("an idle reader from further back serves a later slice") {
  Setting setting(1, kPlenty, {4});
  SliceTask first = setting.Take();
  SliceTask second = setting.Take();
  Run(&first, &setting.ledger);
  setting.queue.Finish(std::move(first));
  SliceTask third = setting.Take(Choice::kAny);
  REQUIRE(third.reader != nullptr);
  CHECK(third.reader->row() == 10);  // one slice earlier
  Run(&second, &setting.ledger);
  setting.queue.Finish(std::move(second));
  SliceTask fourth = setting.Take(Choice::kAny);
  REQUIRE(fourth.reader != nullptr);
  CHECK(fourth.reader->row() == 20);
}

TEST_CASE("no reader stays idle after a column's last slice is taken") {
  for (const bool last_first : {false, true}) {
    CAPTURE(last_first);
    Setting setting(1, kPlenty, {2, 1, 1});
    SliceTask first = setting.Take();
    SliceTask last = setting.Take();
    Run(&first, &setting.ledger);
    Run(&last, &setting.ledger);
    if (last_first) std::swap(first, last);
    setting.queue.Finish(std::move(first));
    CHECK(setting.ledger.num_alive == 1);  // the one that runs
    setting.queue.Finish(std::move(last));
    CHECK(setting.ledger.num_alive == 0);
    CHECK(setting.ledger.destroyed_bytes == 0);
    for (int i = 0; i < 2; ++i) CHECK(setting.Take().buffers.num_bytes() > 0);
  }
}

TEST_CASE("a task that failed brings no reader back, and the others go on") {
  Setting setting(2, kPlenty, {3});
  setting.TakeAndFinish();
  setting.TakeAndFinish();
  SliceTask failed = setting.Take();
  REQUIRE(failed.reader != nullptr);
  failed.reader.reset();
  CHECK(setting.queue.Finish(std::move(failed)).reader == nullptr);
  CHECK(setting.queue.num_running() == 0);
  CHECK(setting.TakeAndFinish().reader != nullptr);
  // All that was known before the failure is still true.
  const auto again = setting.TakeAndFinish();
  CHECK(again.reader == nullptr);
  CHECK(Same(again.place, FakeReader::PlaceFor(10)));
  CHECK(setting.TakeAndFinish().reader != nullptr);
  CHECK(setting.queue.empty());
}

TEST_CASE("the buffers of a task that needed no reader are not lost") {
  Setting setting(2, kPlenty, {1, 1, 1});
  for (int chunk = 0; chunk < 3; ++chunk) {
    CHECK(setting.TakeAndFinish().buffer_bytes == (chunk == 0 ? 0 : kBufferBytes));
    SliceTask generated = setting.Take();
    setting.queue.Finish(std::move(generated));
  }
}

TEST_CASE("Clear gives up readers and buffers, and the queue begins anew") {
  Setting setting(2, 2 * kBufferBytes, {1, 3});
  for (int i = 0; i < 4; ++i) setting.TakeAndFinish();
  REQUIRE(setting.ledger.num_alive == 2);
  setting.queue.Clear();
  CHECK(setting.ledger.num_alive == 0);
  CHECK(setting.queue.empty());
  CHECK_FALSE(setting.queue.Take(Choice::kAny));
  setting.queue.Clear();

  // The chunk that was begun is another one now, and there is room as at first.
  Slices slices;
  slices.Next(true);
  for (int i = 0; i < 2; ++i) setting.queue.Push(slices.Next(i == 1));
  for (int i = 0; i < 2; ++i) {
    const auto begun = setting.TakeAndFinish();
    CHECK(begun.reader == nullptr);
    CHECK(Same(begun.place, {}));
    CHECK(begun.buffer_bytes == 0);
    CHECK(setting.given_up.reader == nullptr);
  }
  CHECK(setting.ledger.num_alive == 2);
}

// Plays threads that take and finish tasks in any order, against a list of what the
// queue must know.
class Game {
 public:
  Game(Draws* draws, int64_t num_tasks, int64_t max_held_bytes)
      : draws_(*draws),
        num_tasks_(num_tasks),
        max_held_bytes_(max_held_bytes),
        queue_(num_tasks, max_held_bytes) {}

  void Play(int num_steps) {
    for (int step = 0; step < num_steps; ++step) {
      CAPTURE(step);
      switch (draws_.Below(4)) {
        case 0:
          if (std::ssize(open_) < 6) Push();
          break;
        case 1:
          Take(Choice::kUnshared);
          break;
        case 2:
          Take(Choice::kAny);
          break;
        default:
          Finish();
      }
      CheckState();
    }
    while (!open_.empty()) {
      Take(Choice::kAny);
      Finish();
      CheckState();
    }
  }

  int64_t num_resumed() const { return num_resumed_; }
  int64_t num_reopened() const { return num_reopened_; }

 private:
  using Cell = std::pair<int64_t, int64_t>;  // (slice number, column)
  struct Open {
    int64_t chunk_number;
    std::set<int64_t> untaken;
    int64_t num_unfinished;
  };

  void Push() {
    OpenSlice open = slices_.Next(draws_.OneIn(3));
    Open& added = open_[open.number];
    added.chunk_number = open.slice.chunk_number;
    added.num_unfinished = num_tasks_;
    for (int64_t index = 0; index < num_tasks_; ++index) added.untaken.insert(index);
    queue_.Push(std::move(open));
  }

  bool IsRunning(int64_t chunk_number, int64_t index) const {
    return std::any_of(running_.begin(), running_.end(), [&](const SliceTask& task) {
      return task.slice->slice.chunk_number == chunk_number && task.index == index;
    });
  }
  std::optional<Cell> Expected(Choice choice) const {
    for (const auto& [number, open] : open_) {
      for (const int64_t index : open.untaken) {
        if (choice == Choice::kAny || !IsRunning(open.chunk_number, index))
          return Cell{number, index};
      }
    }
    return std::nullopt;
  }

  void Take(Choice choice) {
    const auto expected = Expected(choice);
    auto task = queue_.Take(choice);
    REQUIRE(task.has_value() == expected.has_value());
    if (!task) return;
    REQUIRE(Cell{task->slice->number, task->index} == *expected);
    open_[task->slice->number].untaken.erase(task->index);
    CheckBeginning(*task);
    Read(&*task);
    running_.push_back(std::move(*task));
  }

  // The task must begin with a reader or place of its column and chunk, not past its
  // rows.
  void CheckBeginning(const SliceTask& task) {
    const Slice& slice = task.slice->slice;
    const int64_t begin = slice.chunk.rows.begin;
    if (task.reader != nullptr) {
      const auto& reader = static_cast<const FakeReader&>(*task.reader);
      CHECK(reader.chunk_number == slice.chunk_number);
      CHECK(reader.column == task.index);
      CHECK(reader.row() <= begin);
      CHECK(task.buffers.num_bytes() == 0);
      held_bytes_ -= reader.held_bytes();
      ++num_resumed_;
    } else {
      const auto furthest = furthest_.find({slice.chunk_number, task.index});
      const int64_t row = furthest == furthest_.end() ? 0 : furthest->second;
      CHECK(Same(task.place, FakeReader::PlaceFor(row)));
      CHECK(task.place.first_row <= begin);
      held_bytes_ -= task.buffers.num_bytes();
      num_reopened_ += task.place.offset >= 0;
    }
  }

  void Read(SliceTask* task) {
    const bool is_new = task->reader == nullptr;
    Run(task, &ledger_, kBufferBytes << draws_.Below(3));
    if (!is_new) return;
    auto& reader = static_cast<FakeReader&>(*task->reader);
    reader.chunk_number = task->slice->slice.chunk_number;
    reader.column = task->index;
  }

  void Finish() {
    if (running_.empty()) return;
    const auto chosen = running_.begin() + draws_.Below(std::ssize(running_));
    SliceTask task = std::move(*chosen);
    running_.erase(chosen);
    const int64_t number = task.slice->number;
    if (draws_.OneIn(15)) {
      task.reader.reset();
    } else {
      int64_t& row = furthest_[{task.slice->slice.chunk_number, task.index}];
      row = std::max(row, EndOf(task));
      held_bytes_ += task.reader->held_bytes();
    }
    const int64_t destroyed_before = ledger_.destroyed_bytes;
    const SliceTask given_up = queue_.Finish(std::move(task));
    if (given_up.reader != nullptr) held_bytes_ -= given_up.reader->held_bytes();
    held_bytes_ -= given_up.buffers.num_bytes();
    held_bytes_ -= ledger_.destroyed_bytes - destroyed_before;
    if (--open_[number].num_unfinished == 0) open_.erase(number);
  }

  void CheckState() {
    REQUIRE(held_bytes_ <= max_held_bytes_);
    CHECK(queue_.empty() == open_.empty());
    CHECK(queue_.has_untaken() == std::ranges::any_of(open_, [](const auto& open) {
            return !open.second.untaken.empty();
          }));
    CHECK(queue_.num_running() == std::ssize(running_));
  }

  Draws& draws_;
  const int64_t num_tasks_;
  const int64_t max_held_bytes_;
  Ledger ledger_;
  SliceQueue queue_;
  Slices slices_;
  std::map<int64_t, Open> open_;
  std::map<Cell, int64_t> furthest_;  // row, by chunk and column
  std::vector<SliceTask> running_;
  int64_t held_bytes_ = 0;  // by the queue
  int64_t num_resumed_ = 0;
  int64_t num_reopened_ = 0;
};

TEST_CASE("games of many threads keep the order, the bound, and what belongs together") {
  Draws draws(90);
  for (const int64_t max_held_bytes :
       {int64_t{0}, kBufferBytes, 6 * kBufferBytes, 40 * kBufferBytes, kPlenty}) {
    CAPTURE(max_held_bytes);
    int64_t num_resumed = 0;
    int64_t num_reopened = 0;
    for (int trial = 0; trial < 60; ++trial) {
      Game game(&draws, draws.Between(1, 5), max_held_bytes);
      game.Play(300);
      num_resumed += game.num_resumed();
      num_reopened += game.num_reopened();
    }
    CHECK((num_resumed > 0) == (max_held_bytes > 0));
    CHECK(num_reopened > 0);
  }
}

TEST_CASE("a task that was paused is taken again before later ones") {
  Draws draws(91);
  for (int trial = 0; trial < 60; ++trial) {
    Ledger ledger;
    Slices slices;
    const int64_t num_tasks = draws.Between(1, 4);
    SliceQueue queue(num_tasks, kPlenty);
    std::set<std::pair<int64_t, int64_t>> untaken;  // (slice number, column)
    std::vector<SliceTask> running;
    for (int step = 0; step < 300; ++step) {
      CAPTURE(step);
      const int64_t choice = draws.Below(5);
      if (choice == 0 && std::ssize(untaken) < 20) {
        OpenSlice open = slices.Next(draws.OneIn(3));
        for (int64_t i = 0; i < num_tasks; ++i) untaken.emplace(open.number, i);
        queue.Push(std::move(open));
      } else if (choice <= 2) {
        auto task = queue.Take(Choice::kAny);
        REQUIRE(task.has_value() == !untaken.empty());
        if (task) {
          REQUIRE(std::pair(task->slice->number, task->index) == *untaken.begin());
          untaken.erase(untaken.begin());
          Run(&*task, &ledger);
          running.push_back(std::move(*task));
        }
      } else if (!running.empty()) {
        const auto chosen = running.begin() + draws.Below(std::ssize(running));
        SliceTask task = std::move(*chosen);
        running.erase(chosen);
        if (choice == 3) {
          untaken.emplace(task.slice->number, task.index);
          queue.Pause(std::move(task));
        } else {
          queue.Finish(std::move(task));
        }
      }
      CHECK(queue.has_untaken() == !untaken.empty());
      CHECK(queue.num_running() == std::ssize(running));
    }
  }
}

}  // namespace
}  // namespace torchparquet
