#include "reader/windows/window_tasks.h"

#include <algorithm>
#include <span>
#include <string>
#include <utility>

#include "base/errors.h"
#include "kernels/streaming_stores.h"

namespace torchparquet {
namespace {

// By batch of the window, the place of row 0 of a field's element.
std::vector<uint8_t*> RowZeros(const OpenWindow& window, int64_t offset) {
  std::vector<uint8_t*> places;
  places.reserve(window.in_flight.size());
  for (const InFlightBatch* batch : window.in_flight) {
    places.push_back(batch->memory.data + offset);
  }
  return places;
}

}  // namespace

// The strips of a task, all in the same scratch memory. When a strip is full, it is
// partitioned or, if cells are not items, scattered to the batches. In a window with an
// order, strips are where rows are staged, and stay there.
class WindowTaskRunner::Strips : public DecodeProgress {
 public:
  Strips(const TaskContext& context, const WindowTask& task, DecodeScratch* scratch)
      : context_(context),
        task_(task),
        scratch_(scratch),
        place_(FieldOfTask(context, task.index)),
        cell_bytes_(place_.cell_items * place_.item_bytes),
        cells_(task.window->cells[static_cast<size_t>(task.index)].get()) {
    task.window->places.Make();
    if (cells_ != nullptr) {
      cells_->Begin(task.window->places.num_places(), task.window->max_staged_bytes,
                    context.jagged);
    }
    if (task.window->places.has_order()) {
      CutInPlace();
      return;
    }
    Cut();
    if (cells_ != nullptr) return;
    const int64_t element = ElementOfTask(*context_.spec, task.index);
    values_ = RowZeros(*task.window, place_.values_offset + element * cell_bytes_);
    if (place_.valid_offset < 0) return;
    valid_ = RowZeros(*task.window, place_.valid_offset + element * place_.valid_items);
  }

  std::span<const Segment> segments() const { return segments_; }

  JaggedItems BeginItems() override { return {}; }
  void EndItems(JaggedItems) override {}

  void SegmentDone() override {
    const int64_t num_rows = segments_[num_done_].num_rows;
    if (task_.window->places.has_order()) {
      // Rows are where they are gathered from.
    } else if (cells_ != nullptr) {
      Partition(num_rows);
    } else {
      Scatter(num_rows);
    }
    first_row_ += num_rows;
    ++num_done_;
    if (*context_.stopping) throw ReaderClosed();
  }

 private:
  // For cells that are not items: short enough that a strip stays in the first cache.
  static constexpr int64_t kStripBytes = int64_t{32} << 10;

  // Strips are long, as each decoder pays for its begin, but end often enough to stop.
  void CutInPlace() {
    constexpr int64_t kStripRows = 32'768;
    const int64_t first = task_.window->places.RowOf(task_.part, 0);
    const int64_t num_rows = task_.chunk().rows.num_rows;
    for (int64_t row = 0; row < num_rows; row += kStripRows) {
      segments_.push_back(
          cells_->SegmentOf(first + row, std::min(kStripRows, num_rows - row)));
    }
  }

  // Strips of items are cut as the permutation cuts the window's rows.
  void Cut() {
    const WindowPlaces& places = task_.window->places;
    const int64_t num_rows = task_.chunk().rows.num_rows;
    const int64_t strip_rows = cells_ != nullptr
                                   ? places.strip_rows()
                                   : std::max<int64_t>(1, kStripBytes / cell_bytes_);
    const int64_t room = std::min(strip_rows, num_rows);
    strip_ = scratch_->strip.ReserveItems<uint8_t>(room * cell_bytes_);
    if (place_.valid_offset >= 0) {
      strip_valid_ =
          scratch_->strip_valid.ReserveItems<uint8_t>(room * place_.valid_items);
    }
    for (int64_t row = 0; row < num_rows;) {
      const int64_t end =
          std::min(num_rows, cells_ != nullptr ? places.StripEnd(task_.part, row)
                                               : row + strip_rows);
      segments_.push_back(
          {.values = strip_, .valid = strip_valid_, .num_rows = end - row});
      row = end;
    }
  }

  void Partition(int64_t num_rows) const {
    const WindowPlaces& places = task_.window->places;
    if (const auto strip = places.StripAt(task_.part, first_row_, num_rows)) {
      return cells_->Add(*strip, strip_, strip_valid_);
    }
    uint32_t* out = scratch_->rows.ReserveItems<uint32_t>(num_rows);
    places.Places(task_.part, first_row_, num_rows, out);
    cells_->Add({out, static_cast<size_t>(num_rows)}, strip_, strip_valid_);
  }

  void Scatter(int64_t num_rows) const {
    const WindowPlaces& places = task_.window->places;
    const kernels::SlotMap values{values_, places.row_bits(), place_.width * cell_bytes_};
    const kernels::SlotMap valid{valid_, places.row_bits(),
                                 place_.width * place_.valid_items};
    uint32_t* slots = scratch_->rows.ReserveItems<uint32_t>(num_rows);
    places.Slots(task_.part, first_row_, num_rows, slots);
    const std::span<const uint32_t> all(slots, static_cast<size_t>(num_rows));
    kernels::ScatterCells(strip_, cell_bytes_, all, values);
    if (strip_valid_ == nullptr) return;
    kernels::ScatterCells(strip_valid_, place_.valid_items, all, valid);
  }

  const TaskContext& context_;
  const WindowTask task_;
  DecodeScratch* scratch_;
  const FieldPlace& place_;
  const int64_t cell_bytes_;
  WindowCells* cells_;  // null if cells are not items
  std::vector<uint8_t*> values_;
  std::vector<uint8_t*> valid_;
  uint8_t* strip_ = nullptr;
  uint8_t* strip_valid_ = nullptr;
  std::vector<Segment> segments_;
  size_t num_done_ = 0;
  int64_t first_row_ = 0;  // of the next segment
};

// The single segment of a chunk whose rows differ in length.
class WindowTaskRunner::Staged : public DecodeProgress {
 public:
  Staged(const WindowTaskRunner& runner, const WindowTask& task, WindowItems* items)
      : runner_(runner), task_(task), items_(items) {}

  JaggedItems BeginItems() override {
    return items_->BeginItems(task_.chunk().rows.num_rows);
  }
  void EndItems(JaggedItems items) override {
    if (runner_.IsTooLarge(*task_.window)) return;
    task_.window->item_bytes += items_->EndItems(task_.part, std::move(items));
  }
  void SegmentDone() override {
    if (*runner_.context_.stopping) throw ReaderClosed();
  }

 private:
  const WindowTaskRunner& runner_;
  const WindowTask task_;
  WindowItems* items_;
};

std::unique_ptr<ColumnReader> WindowTaskRunner::OpenReader(const WindowTask& task,
                                                           DecodeScratch* scratch) const {
  const CostTimer timer(&scratch->costs.open_time);
  return OpenTaskReader(context_, task.index, task.chunk(), {}, &scratch->column);
}

bool WindowTaskRunner::IsTooLarge(const OpenWindow& window) const {
  return std::max<int64_t>(window.item_bytes, window.gathered_bytes) >
         context_.spec->max_memory_bytes;
}

// Names the column with the most items by the footers, so it is the same whatever the
// timing.
Error WindowTaskRunner::TooLarge() const {
  const ReaderSpec& spec = *context_.spec;
  const auto bytes_of = [&](const ColumnSpec& column) {
    const FieldSpec& field = spec.fields[static_cast<size_t>(column.field)];
    return field.num_offsets > 0 ? field.row_bytes : -1;
  };
  const auto most = std::ranges::max_element(spec.columns, {}, bytes_of);
  return Error(ErrorKind::kValuesTooLarge,
               Text("strings and lists of rows that are shuffled together need more than "
                    "max_memory; take a smaller shuffle_window or a larger max_memory: ",
                    spec.max_memory_bytes, " bytes"),
               {.column = most->request.path});
}

// The column that a task decodes or gathers.
WindowItems* WindowTaskRunner::ItemsOf(const WindowTask& task) const {
  const int64_t number = FieldOfTask(context_, task.index).first_jagged +
                         ElementOfTask(*context_.spec, task.index);
  return task.window->items[static_cast<size_t>(number)].get();
}

// Decodes a chunk's rows apart. In a window that is too large, rows are decoded for
// failures of their own, which come first in the order, and not kept.
bool WindowTaskRunner::ReadItems(const WindowTask& task, DecodeScratch* scratch) const {
  OpenWindow& window = *task.window;
  WindowItems* items = ItemsOf(task);
  const Chunk& chunk = task.chunk();
  const std::unique_ptr<ColumnReader> reader = OpenReader(task, scratch);
  const Segment segment = items->BeginRows(task.part, chunk.rows.num_rows);
  ColumnTarget target = TargetOfTask(*context_.spec, task.index);
  target.segments = {&segment, 1};
  Staged staged(*this, task, items);
  try {
    reader->Read(chunk.rows, target, scratch, &staged);
  } catch (const Error& error) {
    if (error.kind() != ErrorKind::kValuesTooLarge) throw;
    // The items of this chunk alone are beyond the bound.
    window.item_bytes += context_.spec->max_memory_bytes + 1;
    return false;
  }
  scratch->column = reader->TakeBuffers();
  if (IsTooLarge(window)) return false;
  return true;
}

bool WindowTaskRunner::GatherItems(const WindowTask& task) const {
  OpenWindow& window = *task.window;
  const int64_t jagged = FieldOfTask(context_, task.index).jagged_index;
  const int64_t element = ElementOfTask(*context_.spec, task.index);
  WindowItems* items = ItemsOf(task);
  const std::string& path =
      context_.spec->columns[static_cast<size_t>(task.index)].request.path;
  const auto [begin, end] = task.PartOf(window.in_flight.size());
  try {
    for (size_t run = begin; run < end; ++run) {
      InFlightBatch* batch = window.in_flight[run];
      JaggedPart part = items->Gather(window.places, run, batch->memory.data);
      if (window.places.has_order()) window.gathered_bytes += part.items.num_bytes();
      batch->AddPart(jagged, element, std::move(part), path);
      if (IsTooLarge(window)) return false;
      if (*context_.stopping) throw ReaderClosed();
    }
  } catch (...) {
    throw CurrentErrorAt({.column = path});
  }
  items->EndGather();
  return true;
}

void WindowTaskRunner::ReadColumn(const WindowTask& task, DecodeScratch* scratch,
                                  Strips* strips) const {
  const Chunk& chunk = task.chunk();
  const std::unique_ptr<ColumnReader> reader = OpenReader(task, scratch);
  ColumnTarget target = TargetOfTask(*context_.spec, task.index);
  target.stride = 1;
  target.segments = strips->segments();
  reader->Read(chunk.rows, target, scratch, strips);
  scratch->column = reader->TakeBuffers();
}

// Reads a column of cells, or a generated one.
void WindowTaskRunner::ReadCells(const WindowTask& task, DecodeScratch* scratch) const {
  const Chunk& chunk = task.chunk();
  const TaskKind kind = KindOfTask(*context_.spec, task.index);
  Strips strips(context_, task, scratch);
  if (kind == TaskKind::kColumn) return ReadColumn(task, scratch, &strips);
  const auto selection = IdSelectionOf(context_, chunk);
  int64_t first_row = 0;
  for (const Segment& segment : strips.segments()) {
    WriteGenerated(kind, chunk, selection.get(), first_row, segment);
    first_row += segment.num_rows;
    strips.SegmentDone();
  }
}

// The thread that brings the last chunk of the column reads all of them once more if
// their items lie too far apart for differences.
void WindowTaskRunner::EndChunk(const WindowTask& task, DecodeScratch* scratch) const {
  const auto index = static_cast<size_t>(task.index);
  WindowCells* cells = task.window->cells[index].get();
  if (cells == nullptr || cells->EndTask() > task.window->num_gathers[index]) return;
  if (!cells->are_to_be_added_again()) return;
  cells->BeginAgain();
  WindowTask chunk = task;
  for (chunk.part = 0; !chunk.gathers(); ++chunk.part) ReadCells(chunk, scratch);
}

void WindowTaskRunner::GatherCells(const WindowTask& task) const {
  const OpenWindow& window = *task.window;
  WindowCells* cells = window.cells[static_cast<size_t>(task.index)].get();
  const WindowPlaces& places = window.places;
  const bool has_order = places.has_order();
  const auto [begin, end] =
      task.PartOf(has_order ? places.runs().size() : places.pieces().size());
  for (size_t i = begin; i < end; ++i) {
    if (has_order) {
      cells->Gather(places.OrderOf(i), places.runs()[i].first_row,
                    window.in_flight[i]->memory.data);
    } else {
      const WindowPlaces::Piece& piece = places.pieces()[i];
      cells->Gather(piece, window.in_flight[piece.run]->memory.data);
    }
    if (*context_.stopping) throw ReaderClosed();
  }
  kernels::EndStreamingStores();
  if (cells->EndTask() == 0) cells->Clear();
}

// After the last task of a window, its batches are complete.
void WindowTaskRunner::CountDown(OpenWindow* window) const {
  // Release: passes cells on to the thread that counts down last. Acquire: that thread
  // passes on the writes of others.
  if (window->num_undone.fetch_sub(1, std::memory_order_acq_rel) != 1) return;
  const std::vector<BatchRun>& runs = window->places.runs();
  for (size_t i = 0; i < runs.size(); ++i) {
    context_.ring->CountDown(*window->in_flight[i],
                             runs[i].num_rows * context_.spec->num_tasks());
  }
}

bool WindowTaskRunner::Run(const WindowTask& task, DecodeScratch* scratch) const {
  const bool are_items = FieldOfTask(context_, task.index).num_offsets > 0;
  if (task.gathers()) {
    if (IsTooLarge(*task.window)) return false;
    task.window->places.Make();
    if (are_items && !GatherItems(task)) return false;
    if (!are_items) GatherCells(task);
  } else if (are_items) {
    if (!ReadItems(task, scratch)) return false;
  } else {
    ReadCells(task, scratch);
    EndChunk(task, scratch);
  }
  CountDown(task.window);
  return true;
}

}  // namespace torchparquet
