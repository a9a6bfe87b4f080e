#include "batches/jagged.h"

#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <limits>
#include <string>
#include <utility>

#include "base/errors.h"

namespace torchparquet {
namespace {

constexpr int64_t kOffsetBytes = sizeof(int64_t);

// Appends a copy of `from`, as bytes.
void Append(const kernels::ByteSink& from, kernels::ByteSink* to) {
  const auto bytes = from.bytes();
  if (bytes.empty()) return;
  std::memcpy(to->Extend(bytes.size()), bytes.data(), bytes.size());
}

void AddToAll(int64_t base, int64_t count, int64_t* starts) {
  if (base == 0) return;
  for (int64_t i = 0; i < count; ++i) starts[i] += base;
}

void AppendStarts(const kernels::ByteSink& from, int64_t base, kernels::ByteSink* to) {
  const auto bytes = from.bytes();
  if (bytes.empty()) return;
  uint8_t* room = to->Extend(bytes.size());
  std::memcpy(room, bytes.data(), bytes.size());
  // Sinks of starts hold nothing but int64, so all are aligned.
  AddToAll(base, static_cast<int64_t>(bytes.size()) / kOffsetBytes,
           reinterpret_cast<int64_t*>(room));
}

void AppendItems(const JaggedItems& from, JaggedItems* to) {
  for (size_t level = 0; level < from.starts.size(); ++level) {
    AppendStarts(*from.starts[level].operator->(), to->num_items[level + 1],
                 &*to->starts[level]);
  }
  Append(*from.values.operator->(), &*to->values);
  Append(*from.valid.operator->(), &*to->valid);
  for (size_t level = 0; level < from.num_items.size(); ++level) {
    to->num_items[level] += from.num_items[level];
  }
}

}  // namespace

SinkPool::Lease& SinkPool::Lease::operator=(Lease&& other) noexcept {
  if (this == &other) return *this;
  Return();
  pool_ = std::move(other.pool_);
  sink_ = std::move(other.sink_);
  return *this;
}

void SinkPool::Lease::Return() noexcept {
  if (pool_ != nullptr) pool_->Return(std::move(sink_));
  pool_.reset();
}

SinkPool::SinkPool(int64_t max_idle_bytes, int64_t max_sink_bytes)
    : max_idle_bytes_(max_idle_bytes),
      max_sink_bytes_(max_sink_bytes),
      owner_pid_(getpid()) {}

std::shared_ptr<SinkPool> SinkPool::Make(int64_t max_idle_bytes, int64_t max_sink_bytes) {
  return std::shared_ptr<SinkPool>(new SinkPool(max_idle_bytes, max_sink_bytes));
}

SinkPool::Lease SinkPool::Acquire(int64_t likely_bytes) {
  kernels::ByteSink sink;
  {
    const std::lock_guard lock(mutex_);
    // The smallest sink that is large enough, or else the largest.
    auto best =
        idle_.lower_bound(static_cast<size_t>(std::max<int64_t>(likely_bytes, 0)));
    if (best == idle_.end() && !idle_.empty()) --best;
    if (best != idle_.end()) {
      sink = std::move(best->second);
      idle_.erase(best);
      idle_bytes_ -= static_cast<int64_t>(sink.capacity());
    }
  }
  sink.set_max_bytes(static_cast<size_t>(max_sink_bytes_));
  sink.Extend(static_cast<size_t>(std::clamp<int64_t>(likely_bytes, 0, max_sink_bytes_)));
  sink.Clear();
  return {shared_from_this(), std::move(sink)};
}

void SinkPool::Return(kernels::ByteSink sink) noexcept {
  const auto num_bytes = static_cast<int64_t>(sink.capacity());
  if (num_bytes == 0 || getpid() != owner_pid_) return;
  sink.Clear();
  const std::lock_guard lock(mutex_);
  if (idle_bytes_ + num_bytes > max_idle_bytes_) return;
  try {
    idle_.emplace(sink.capacity(), std::move(sink));
    idle_bytes_ += num_bytes;
  } catch (...) {
    return;  // if the list cannot grow, the memory is freed
  }
}

int64_t SinkPool::idle_bytes() const {
  const std::lock_guard lock(mutex_);
  return idle_bytes_;
}

int64_t JaggedItems::num_bytes() const {
  size_t total = values->size() + valid->size();
  for (const SinkPool::Lease& level : starts) total += level->size();
  return static_cast<int64_t>(total);
}

int64_t JaggedItems::num_part_bytes() const {
  if (is_keyed) return static_cast<int64_t>(values->size());
  // Without the last offset of each level.
  return num_bytes() - static_cast<int64_t>(starts.size()) * kOffsetBytes;
}

void CheckSize(const JaggedField& field) {
  if (!field.is_too_large()) return;
  throw Error(ErrorKind::kValuesTooLarge,
              Text("values of one batch need more than the memory they may take; take a "
                   "smaller batch_size or a larger max_memory: ",
                   field.num_bytes, " bytes of ", field.max_bytes));
}

JaggedItems JoinParts(JaggedField field) {
  CheckSize(field);
  JaggedColumn column = std::move(field.columns.front());
  std::ranges::sort(column.parts, {}, &JaggedPart::first_row);
  JaggedItems items = std::move(column.parts.front().items);
  for (size_t i = 1; i < column.parts.size(); ++i) {
    const JaggedPart part = std::move(column.parts[i]);
    AddToAll(items.num_items.front(), part.num_rows, column.offsets + part.first_row);
    AppendItems(part.items, &items);
  }
  const JaggedPart& last = column.parts.back();
  column.offsets[last.first_row + last.num_rows] = items.num_items.front();
  for (size_t level = 0; level < items.starts.size(); ++level) {
    std::memcpy(items.starts[level]->Extend(sizeof(int64_t)), &items.num_items[level + 1],
                sizeof(int64_t));
  }
  return items;
}

namespace {

void AppendColumn(JaggedColumn column, int32_t* lengths, JaggedItems* items) {
  std::ranges::sort(column.parts, {}, &JaggedPart::first_row);
  // Offsets and lengths share memory, where no object of either type begins to live.
  const auto* offsets = reinterpret_cast<const uint8_t*>(column.offsets);
  auto* out = reinterpret_cast<uint8_t*>(lengths);
  int64_t longest = 0;
  for (JaggedPart& part : column.parts) {
    const uint8_t* next = offsets + part.first_row * kOffsetBytes;
    const auto write = [&](int64_t length) {
      longest = std::max(longest, length);
      const auto stored = static_cast<int32_t>(length);
      std::memcpy(out, &stored, sizeof(stored));
      out += sizeof(stored);
    };
    int64_t begin = 0;
    if (part.num_rows > 0) std::memcpy(&begin, next, sizeof(begin));
    for (int64_t row = 1; row < part.num_rows; ++row) {
      next += kOffsetBytes;
      int64_t end = 0;
      std::memcpy(&end, next, sizeof(end));
      write(end - begin);
      begin = end;
    }
    if (part.num_rows > 0) write(part.items.num_items.front() - begin);
    Append(*part.items.values.operator->(), &*items->values);
    items->num_items.front() += part.items.num_items.front();
    part.items = {};
  }
  if (longest > std::numeric_limits<int32_t>::max()) {
    throw Error(ErrorKind::kListLength,
                Text("a list of a keyed field is longer than an int32 holds: ", longest));
  }
  std::memcpy(items->starts.front()->Extend(sizeof(int64_t)), items->num_items.data(),
              sizeof(int64_t));
}

}  // namespace

void JoinColumn(JaggedColumn column, int64_t num_rows, JaggedField* field) {
  const auto number = static_cast<int64_t>(field->num_joined);
  const std::string_view path = column.path;
  try {
    if (number == 0) {
      field->items = field->memory->BeginKeyed(field->first_column,
                                               std::ssize(field->columns), num_rows);
    }
    AppendColumn(std::move(column), LengthsOf(*field) + number * num_rows, &field->items);
  } catch (...) {
    throw CurrentErrorAt({.column = std::string(path)});
  }
}

int32_t* LengthsOf(const JaggedField& field) {
  return reinterpret_cast<int32_t*>(field.columns.front().offsets);
}

void CheckWeights(const JaggedField& weights, const JaggedField& values,
                  int64_t num_rows) {
  const auto count = static_cast<size_t>(num_rows) * weights.columns.size();
  const int32_t* begin = LengthsOf(weights);
  const auto [wrong, right] = std::mismatch(begin, begin + count, LengthsOf(values));
  if (wrong == begin + count) return;
  const auto number = wrong - begin;
  const auto column = static_cast<size_t>(number / num_rows);
  throw Error(
      ErrorKind::kListLength,
      Text("weights must have the lengths of their values: ", *wrong, " weights for ",
           *right, " values of '", Printable(values.columns[column].path), "', row ",
           number % num_rows, " of the batch"),
      {.column = std::string(weights.columns[column].path)});
}

JaggedMemory::JaggedMemory(std::vector<double> row_bytes, int64_t max_bytes,
                           std::shared_ptr<SinkPool> pool)
    : row_bytes_(row_bytes.size()), max_bytes_(max_bytes), pool_(std::move(pool)) {
  for (size_t i = 0; i < row_bytes.size(); ++i) row_bytes_[i] = row_bytes[i];
}

// A sink with room for about so many rows of consecutive columns.
SinkPool::Lease JaggedMemory::AcquireValues(int64_t first_column, int64_t num_columns,
                                            int64_t num_rows) {
  // Some more, so that rows slightly longer than earlier ones need no growth.
  constexpr double kMargin = 1.125;
  double row_bytes = 0;
  for (int64_t i = 0; i < num_columns; ++i) {
    row_bytes += row_bytes_[static_cast<size_t>(first_column + i)].load();
  }
  const double likely = row_bytes * static_cast<double>(num_rows) * kMargin;
  return pool_->Acquire(static_cast<int64_t>(std::min(likely, 0x1p62)));
}

JaggedItems JaggedMemory::Begin(int64_t column, int64_t num_rows, int64_t num_offsets,
                                bool has_valid) {
  JaggedItems items;
  items.values = AcquireValues(column, 1, num_rows);
  for (int64_t i = 1; i < num_offsets; ++i) items.starts.push_back(pool_->Acquire(0));
  if (has_valid) items.valid = pool_->Acquire(0);
  items.num_items.assign(static_cast<size_t>(num_offsets), 0);
  return items;
}

JaggedItems JaggedMemory::BeginKeyed(int64_t first_column, int64_t num_columns,
                                     int64_t num_rows) {
  JaggedItems items;
  items.values = AcquireValues(first_column, num_columns, num_rows);
  items.starts.push_back(pool_->Acquire((num_columns + 1) * kOffsetBytes));
  std::memset(items.starts.front()->Extend(kOffsetBytes), 0, kOffsetBytes);
  items.num_items = {0};
  items.is_keyed = true;
  return items;
}

void JaggedMemory::Learn(int64_t column, int64_t num_rows, const JaggedItems& items) {
  row_bytes_[static_cast<size_t>(column)] =
      static_cast<double>(items.values->size()) / static_cast<double>(num_rows);
  num_bytes_ += items.num_bytes();
}

void JaggedMemory::Forget(const std::vector<JaggedItems>& items) {
  for (const JaggedItems& of_field : items) num_bytes_ -= of_field.num_part_bytes();
}

}  // namespace torchparquet
