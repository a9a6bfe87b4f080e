#include "recipes/reading.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <cstdlib>
#include <numeric>
#include <stdexcept>

#include "recipes/made_permutation.h"

namespace torchparquet::testing {
namespace {

constexpr std::chrono::milliseconds kTooLong{60'000};

std::filesystem::path MakeDirectory() {
  std::string name =
      (std::filesystem::temp_directory_path() / "torchparquet-XXXXXX").string();
  if (mkdtemp(name.data()) == nullptr) throw std::runtime_error("no temporary directory");
  return name;
}

int64_t SlabBytes(const ReaderParts& spec) {
  int64_t capacity = spec.batch_rows;
  for (const Chunk& chunk : spec.share.chunks) {
    if (spec.batch_rows == 0) capacity = std::max(capacity, chunk.rows.num_rows);
  }
  for (const int64_t size : spec.batch_sizes) capacity = std::max(capacity, size);
  return MakeBatchLayout(spec.fields, capacity).slab_bytes;
}

}  // namespace

// Moments in time are delivered as int64, everything else as what it is.
ColumnRequest RequestOf(const StoredColumn& column) {
  const auto dtype = kernels::DtypeOfName(column.kind);
  return {column.name, {column.kind}, dtype.value_or(kernels::Dtype::kInt64)};
}

DataSet::DataSet(FileRecipe recipe, int64_t num_files)
    : recipe_(std::move(recipe)), directory_(MakeDirectory()) {
  file_rows_ = std::accumulate(recipe_.row_group_rows.begin(),
                               recipe_.row_group_rows.end(), int64_t{0});
  for (int64_t file = 0; file < num_files; ++file) {
    paths_.push_back((directory_ / (std::to_string(file) + ".parquet")).string());
    WriteParquet(paths_.back(), recipe_, file * file_rows_);
  }
}

DataSet::~DataSet() { std::filesystem::remove_all(directory_); }

std::vector<PlannedFile> DataSet::Planned() const {
  std::vector<PlannedFile> planned;
  for (const std::string& path : paths_)
    planned.push_back({.path = path, .identity = {}});
  return planned;
}

ReaderParts DataSet::Spec(int64_t batch_rows, int64_t num_threads) const {
  ReaderParts spec;
  spec.files = std::make_shared<ParquetFiles>(Planned());
  for (int64_t file = 0; file < std::ssize(paths_); ++file) {
    int64_t row = file * file_rows_;
    for (size_t group = 0; group < recipe_.row_group_rows.size(); ++group) {
      const int64_t num_rows = recipe_.row_group_rows[group];
      spec.share.chunks.push_back({.file = file,
                                   .rows = {static_cast<int64_t>(group), 0, num_rows},
                                   .first_row_id = row,
                                   .valid = true});
      row += num_rows;
    }
  }
  for (const StoredColumn& column : recipe_.columns) {
    spec.columns.push_back({.request = RequestOf(column),
                            .field = static_cast<int64_t>(spec.fields.size()),
                            .nulls = NullPolicy::kFill,
                            .fill_bits = kFillBits});
    spec.fields.push_back({.item_bytes = ItemBytes(column.kind),
                           .width = 1,
                           .has_valid = column.null_every != 0});
  }
  spec.row_id_field = static_cast<int64_t>(spec.fields.size());
  spec.fields.push_back({.item_bytes = 8});
  spec.row_valid_field = static_cast<int64_t>(spec.fields.size());
  spec.fields.push_back({.item_bytes = 1});
  spec.batch_rows = batch_rows;
  spec.num_threads = num_threads;
  return spec;
}

int64_t MemoryFor(const ReaderParts& spec, int64_t num_slabs) {
  return num_slabs * SlabBytes(spec);
}

std::vector<PlannedRow> PlannedRows(const ReaderParts& spec) {
  if (spec.num_lanes() == 1) return PlannedRows(spec.share);
  std::vector<PlannedRow> rows;
  for (const std::vector<PlannedRow>& batch : LaneBatches(spec)) {
    rows.insert(rows.end(), batch.begin(), batch.end());
  }
  return rows;
}

std::vector<std::vector<PlannedRow>> LaneBatches(const ReaderParts& spec) {
  const int64_t step = spec.batch_rows / spec.num_lanes();
  std::vector<std::vector<PlannedRow>> batches;
  for (int64_t lane = 0; lane < spec.num_lanes(); ++lane) {
    const std::vector<PlannedRow> rows = PlannedRows(spec.lane(lane));
    for (size_t i = 0; i < rows.size(); ++i) {
      const size_t batch = i / static_cast<size_t>(step);
      if (batches.size() <= batch) batches.resize(batch + 1);
      batches[batch].push_back(rows[i]);
    }
  }
  return batches;
}

std::vector<PlannedRow> PlannedRows(const Share& share) {
  std::vector<PlannedRow> rows;
  const auto add_chunk = [](const Chunk& chunk, std::vector<PlannedRow>* to) {
    for (int64_t i = 0; i < chunk.rows.num_rows; ++i) {
      to->push_back({chunk.first_row_id + i, chunk.valid});
    }
  };
  if (share.windows.empty()) {
    for (const Chunk& chunk : share.chunks) add_chunk(chunk, &rows);
    return rows;
  }
  std::vector<PlannedRow> all;
  for (const Chunk& chunk : share.chunks) add_chunk(chunk, &all);
  auto next = all.begin();
  for (const Window& window : share.windows) {
    const std::vector<PlannedRow> stored(next, next + window.num_rows);
    next += window.num_rows;
    if (stored.empty()) continue;
    if (window.order != nullptr) {
      for (int64_t at = window.begin; at < window.end; ++at) {
        rows.push_back(stored[window.order->at(static_cast<size_t>(at))]);
      }
      continue;
    }
    const std::vector<uint32_t> positions =
        MadePermutation(window.key, window.num_rows).Positions(0, window.num_rows);
    std::vector<PlannedRow> permuted(stored.size());
    for (size_t i = 0; i < stored.size(); ++i) permuted[positions[i]] = stored[i];
    rows.insert(rows.end(), permuted.begin() + window.begin,
                permuted.begin() + window.end);
  }
  return rows;
}

Consumer::Consumer(const DataSet& data, const ReaderParts& spec, ReaderMemory memory)
    : spec_(spec),
      columns_(data.columns()),
      planned_(PlannedRows(spec)),
      lane_batches_(spec.num_lanes() > 1 ? LaneBatches(spec)
                                         : std::vector<std::vector<PlannedRow>>()),
      reader_(ReaderSpec{spec}, std::move(memory)) {
  if (!spec.lent_slabs) return;
  for (int64_t token = 0; token < reader_.max_slabs(); ++token) {
    lent_.emplace_back(static_cast<size_t>(reader_.layout().slab_bytes));
    is_lent_.push_back(true);
    reader_.Lend(lent_.back().data(), token);
  }
}

bool Consumer::TakeOne() {
  const BatchRing::TakeResult result = reader_.Next(kTooLong);
  if (result.status == BatchRing::TakeStatus::kTimedOut)
    throw std::runtime_error("a hang");
  if (result.status == BatchRing::TakeStatus::kEnded) return false;
  const auto token = static_cast<size_t>(result.memory.lent_token);
  if (spec_.lent_slabs) {
    num_mismatches_ += !is_lent_.at(token) || lent_[token].data() != result.memory.data;
    is_lent_[token] = false;
  } else {
    num_mismatches_ += result.memory.lent_token != -1;
  }
  Check(result.memory.data, result.num_rows);
  ++batches_taken_;
  rows_taken_ += result.num_rows;
  if (spec_.lent_slabs) {
    std::memset(result.memory.data, 0xEE, lent_[token].size());
    is_lent_[token] = true;
    reader_.Lend(result.memory.data, result.memory.lent_token);
  }
  return true;
}

int64_t Consumer::TakeAll() {
  try {
    while (TakeOne()) {
    }
  } catch (const Error& error) {
    error_ = error;
  }
  return batches_taken_;
}

void Consumer::Check(const uint8_t* slab, int64_t num_rows) {
  const auto planned_rows = static_cast<int64_t>(planned_.size());
  int64_t expected_rows = std::min(spec_.batch_rows, planned_rows - rows_taken_);
  if (spec_.num_lanes() > 1) {
    expected_rows = std::ssize(lane_batches_.at(static_cast<size_t>(batches_taken_)));
  }
  if (spec_.batch_rows == 0) {
    std::vector<int64_t> sizes;
    for (const int64_t size : spec_.batch_sizes) {
      if (size > 0) sizes.push_back(size);
    }
    for (const Chunk& chunk : spec_.share.chunks) {
      const bool is_batch = spec_.batch_sizes.empty() && chunk.rows.num_rows > 0;
      if (is_batch) sizes.push_back(chunk.rows.num_rows);
    }
    expected_rows = sizes.at(static_cast<size_t>(batches_taken_));
  }
  if (num_rows != expected_rows) {
    ++num_mismatches_;
    return;
  }
  for (const ColumnSpec& column : spec_.columns) CheckColumn(column, slab, num_rows);
  const auto& fields = reader_.layout().fields;
  for (int64_t row = 0; row < num_rows; ++row) {
    const PlannedRow& planned = planned_[static_cast<size_t>(rows_taken_ + row)];
    if (spec_.row_id_field >= 0) {
      const auto offset = fields[static_cast<size_t>(spec_.row_id_field)].values_offset;
      num_mismatches_ +=
          LoadItem(slab + offset + 8 * row, 8) != static_cast<uint64_t>(planned.row_id);
    }
    if (spec_.row_valid_field >= 0) {
      const auto offset =
          fields[static_cast<size_t>(spec_.row_valid_field)].values_offset;
      num_mismatches_ += slab[offset + row] != planned.valid;
    }
  }
}

void Consumer::CheckColumn(const ColumnSpec& column, const uint8_t* slab,
                           int64_t num_rows) {
  const auto stored = std::find_if(
      columns_.begin(), columns_.end(),
      [&](const StoredColumn& other) { return other.name == column.request.path; });
  const Cells cells(*stored);
  const FieldPlace& place = reader_.layout().fields[static_cast<size_t>(column.field)];
  for (int64_t row = 0; row < num_rows; ++row) {
    const int64_t row_id = planned_[static_cast<size_t>(rows_taken_ + row)].row_id;
    const int64_t item = row * place.width + column.element;
    num_mismatches_ += !cells.Equals(
        row_id, column.fill_bits, slab + place.values_offset + item * place.item_bytes);
    if (place.valid_offset >= 0) {
      num_mismatches_ += slab[place.valid_offset + item] != !cells.IsNull(row_id);
    }
  }
}

void CheckAll(const DataSet& data, const ReaderParts& spec) {
  CAPTURE(spec.batch_rows);
  CAPTURE(spec.num_threads);
  CAPTURE(spec.max_memory_bytes);
  Consumer consumer(data, spec);
  const int64_t num_batches = consumer.TakeAll();
  if (consumer.error()) FAIL_CHECK(consumer.error()->what());
  CHECK(num_batches == consumer.reader().num_batches());
  CHECK(consumer.num_mismatches() == 0);
  CHECK(consumer.rows_taken() == static_cast<int64_t>(PlannedRows(spec).size()));
  CHECK_FALSE(consumer.TakeOne());
  const ReaderStats stats = consumer.reader().stats();
  CHECK(stats.batches == num_batches);
  CHECK(stats.rows == consumer.rows_taken());
}

}  // namespace torchparquet::testing
