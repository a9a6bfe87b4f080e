#include "reader/windows/window_stream.h"

#include <algorithm>
#include <limits>
#include <numeric>
#include <utility>
#include <vector>

#include "base/ceil_divide.h"
#include "reader/schedule/lane_walks.h"

namespace torchparquet {
namespace {

// By task, the tasks that gather its rows: one if there are columns for all threads,
// several if there are few columns.
std::vector<int64_t> NumGathers(const TaskContext& context) {
  const ReaderSpec& spec = *context.spec;
  const bool has_orders = spec.has_orders();
  const int64_t parts = std::clamp<int64_t>(
      CeilDivide(int64_t{2} * spec.num_threads, spec.num_tasks()), 1, spec.num_threads);
  std::vector<int64_t> num_gathers;
  for (int64_t task = 0; task < spec.num_tasks(); ++task) {
    const FieldPlace& place = FieldOfTask(context, task);
    const bool is_staged = has_orders || place.num_offsets > 0 ||
                           WindowCells::AreItems(place.cell_items * place.item_bytes);
    num_gathers.push_back(is_staged ? parts : 0);
  }
  return num_gathers;
}

}  // namespace

class WindowStream::Task : public DecodeTask {
 public:
  Task(WindowStream* stream, const WindowTask& task) : stream_(stream), task_(task) {
    if (RemoteBlocks::Handle* handle = task.handle()) handle_ = std::move(*handle);
  }

  bool Run(DecodeScratch* scratch) override {
    is_too_large_ = !stream_->runner_.Run(task_, scratch);
    if (is_too_large_) throw stream_->runner_.TooLarge();
    return true;
  }
  int64_t index() const override { return task_.index; }
  const Chunk* chunk() const override {
    return task_.gathers() ? nullptr : &task_.chunk();
  }
  // A window that is too large fails after all of its tasks: those run to their ends.
  FailureKey failure_key() const override {
    FailureKey key = task_.window->KeyOf(task_.part, task_.index);
    if (is_too_large_) key.column = std::numeric_limits<int64_t>::max();
    return key;
  }
  void Pause() override {}
  bool Finish() override {
    const auto index = static_cast<size_t>(task_.index);
    const WindowCells* cells = task_.window->cells[index].get();
    if (cells != nullptr && cells->were_added_again()) stream_->lie_far_[index] = true;
    WindowQueue::Finished finished = stream_->windows_.Finish(task_);
    ended_ = std::move(finished.window);
    if (ended_ != nullptr) stream_->spare_.push_back(ended_->places.TakeMemory());
    return finished.frees_others;
  }

 private:
  WindowStream* stream_;
  const WindowTask task_;
  RemoteBlocks::Handle handle_;
  bool is_too_large_ = false;
  std::unique_ptr<OpenWindow> ended_;
};

WindowStream::WindowStream(const TaskContext& context, const WorkSplit& split,
                           int64_t max_columns, KeptScratch kept)
    : context_(context),
      runner_(context),
      windows_(context.spec->num_tasks(), AreJagged(*context.spec), max_columns),
      num_gathers_(NumGathers(context)),
      lie_far_(static_cast<size_t>(context.spec->num_tasks())),
      spare_(std::move(kept.places)) {
  for (int64_t lane = 0; lane < context.spec->num_lanes(); ++lane) {
    walks_.emplace_back(&context.spec->lane(lane), split, lane);
  }
}

std::optional<BatchRange> WindowStream::next() const {
  const WindowWalk* walk = FirstWalk(*context_.batches, walks_);
  if (walk == nullptr) return std::nullopt;
  return BatchesOf(*context_.batches, *walk->next());
}

void WindowStream::OpenNext() {
  WindowWalk* walk = FirstWalk(*context_.batches, walks_);
  const ChunkWindow& next = *walk->next();
  std::vector<int64_t> chunk_rows;
  chunk_rows.reserve(next.chunks.size());
  for (const Chunk& chunk : next.chunks) chunk_rows.push_back(chunk.rows.num_rows);
  auto window = std::make_unique<OpenWindow>(
      next, chunk_rows,
      context_.batches->Cut(next.share_row, next.window.end - next.window.begin,
                            next.lane),
      RowBits(*context_.layout), TakeSpare(), num_gathers_);
  window->number = num_windows_;
  window->batches = BatchesOf(*context_.batches, next);
  window->num_undone =
      std::ssize(window->chunks) * context_.spec->num_tasks() +
      std::accumulate(num_gathers_.begin(), num_gathers_.end(), int64_t{0});
  for (const BatchRun& run : window->places.runs()) {
    window->in_flight.push_back(&context_.ring->At(run.batch));
  }
  for (const Chunk& chunk : window->chunks) {
    window->handles.push_back(OpenHandles(context_, chunk));
  }
  window->items.resize(static_cast<size_t>(context_.layout->num_jagged));
  for (int64_t task = 0; task < context_.spec->num_tasks(); ++task) {
    const FieldPlace& place = FieldOfTask(context_, task);
    std::unique_ptr<WindowCells>& cells = window->cells.emplace_back();
    const int64_t gathers = num_gathers_[static_cast<size_t>(task)];
    if (gathers == 0) continue;
    if (place.num_offsets > 0) {
      const int64_t element = ElementOfTask(*context_.spec, task);
      window->items[static_cast<size_t>(place.first_jagged + element)] =
          std::make_unique<WindowItems>(place, element, std::ssize(window->chunks),
                                        gathers, context_.jagged);
      continue;
    }
    cells = std::make_unique<WindowCells>(place, ElementOfTask(*context_.spec, task),
                                          window->NumTasks(task),
                                          !lie_far_[static_cast<size_t>(task)]);
    window->max_staged_bytes = std::max(window->max_staged_bytes,
                                        cells->StagedBytes(window->places.num_places()));
  }
  windows_.Push(std::move(window));
  ++num_windows_;
  walk->Advance();
}

// The largest, so that only as many grow as there are large windows at once.
ScratchBuffer WindowStream::TakeSpare() {
  if (spare_.empty()) return {};
  std::swap(*std::ranges::max_element(spare_, {}, &ScratchBuffer::capacity),
            spare_.back());
  ScratchBuffer largest = std::move(spare_.back());
  spare_.pop_back();
  return largest;
}

int64_t WindowStream::held_bytes() const {
  int64_t num_bytes = windows_.held_bytes();
  for (const ScratchBuffer& buffer : spare_) {
    num_bytes += static_cast<int64_t>(buffer.capacity());
  }
  return num_bytes;
}

// Every task is unshared: tasks share only the processor's cache.
std::unique_ptr<DecodeTask> WindowStream::Take(Choice /*choice*/) {
  // Tasks for the batch at the front may always run.
  std::optional<int64_t> front;
  if (context_.jagged->is_full()) front = context_.ring->num_taken();
  const auto task = windows_.Take(front, MayAwaitBytes(context_, num_running()));
  return task ? std::make_unique<Task>(this, *task) : nullptr;
}

}  // namespace torchparquet
