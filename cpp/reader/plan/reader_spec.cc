#include "reader/plan/reader_spec.h"

#include <algorithm>
#include <cstddef>
#include <string>
#include <utility>
#include <vector>

#include "base/errors.h"

namespace torchparquet {
namespace {

void CheckField(const ReaderParts& spec, int64_t field, int64_t element) {
  const auto num_fields = static_cast<int64_t>(spec.fields.size());
  if (field < 0 || field >= num_fields || element < 0 ||
      element >= spec.fields[static_cast<size_t>(field)].width) {
    throw InvalidArgument("a column's place is outside the fields");
  }
}

// Rows of different lengths are stored, and in a field of their own.
void CheckJaggedFields(const ReaderParts& spec) {
  std::vector<int64_t> num_columns(spec.fields.size());
  for (const ColumnSpec& column : spec.columns) {
    const auto field = static_cast<size_t>(column.field);
    const int64_t num_offsets = spec.fields[field].num_offsets;
    if (num_offsets != column.request.num_offsets) {
      throw InvalidArgument("a field and its column differ in their offsets");
    }
    if (num_offsets > 0 && (column.request.default_bits || !column.file_bits.empty())) {
      throw InvalidArgument("rows of different lengths cannot have a number as default");
    }
    const ColumnRequest& request = column.request;
    if (request.default_bytes && num_offsets != 1 &&
        !(num_offsets > 0 && request.default_items == 0)) {
      throw InvalidArgument("only strings and lists of values have a default of bytes");
    }
    ++num_columns[field];
  }
  for (size_t i = 0; i < spec.fields.size(); ++i) {
    const FieldSpec& field = spec.fields[i];
    if (field.num_offsets > 0 && num_columns[i] != field.num_jagged()) {
      throw InvalidArgument(
          "a field of variable length needs one column for each of its width: ",
          num_columns[i]);
    }
    if (field.weighs < 0) continue;
    const auto values = static_cast<size_t>(field.weighs);
    if (!field.is_keyed || values >= spec.fields.size() ||
        !spec.fields[values].is_keyed || spec.fields[values].width != field.width) {
      throw InvalidArgument(
          "a field of weights and that of their values are keyed alike");
    }
  }
}

void CheckSelection(const ReaderParts& spec, const Chunk& chunk) {
  if (chunk.selection < 0) return;
  if (spec.selections == nullptr ||
      chunk.selection >= spec.selections->num_row_groups() ||
      (!spec.rows_are_packed &&
       chunk.rows.end() > spec.selections->num_rows(chunk.selection))) {
    throw InvalidArgument("a chunk of the share has rows that are not selected");
  }
}

}  // namespace

void CheckChunk(const ReaderParts& spec, const Chunk& chunk) {
  const bool is_outside = chunk.file < 0 || chunk.file >= spec.files->num_files();
  if (is_outside || chunk.rows.begin < 0 || chunk.rows.num_rows < 0) {
    throw InvalidArgument("a chunk of the share is outside the files");
  }
  CheckSelection(spec, chunk);
}

namespace {

// Checks a lane and adds it to the sums.
void AddLane(ReaderParts* spec, const Share& share) {
  const int64_t num_rows = CheckShare(share, [&](const Chunk& chunk) {
    CheckChunk(*spec, chunk);
    spec->max_chunk_rows = std::max(spec->max_chunk_rows, chunk.rows.num_rows);
  });
  if (spec->has_windows() && share.windows.empty() && num_rows > 0) {
    throw InvalidArgument(
        "either all shares that are read at once have windows, or none");
  }
  if (!share.windows.empty() &&
      (share.windows[0].order != nullptr) != spec->has_orders()) {
    throw InvalidArgument(
        "either all windows that are read at once have an order, or none");
  }
  spec->lane_rows.push_back(num_rows);
}

// Batches are given their rows in one way, and have as many as are delivered.
void CheckBatches(const ReaderParts& spec, int64_t num_rows) {
  if (spec.num_lanes() > 1 && spec.claims() != nullptr) {
    throw InvalidArgument("a share of claims is read alone");
  }
  if (spec.num_lanes() > 1 && spec.batch_rows == 0) {
    throw InvalidArgument("shares that are read at once need batches of one size");
  }
  const bool has_sizes = !spec.batch_sizes.empty();
  const bool needs_sizes = spec.batch_rows == 0 && spec.has_windows();
  if ((has_sizes && spec.batch_rows > 0) || (!has_sizes && needs_sizes && num_rows > 0)) {
    throw InvalidArgument("batches have either batch_rows rows or those of batch_sizes");
  }
  int64_t sum = 0;
  for (const int64_t size : spec.batch_sizes) sum += size;
  if (has_sizes && sum != num_rows) {
    throw InvalidArgument("batch_sizes are not the rows that are delivered: ", sum, ", ",
                          num_rows);
  }
}

// Row ids and the like are wanted, as plain fields of that size, or not (below 0).
void CheckGeneratedField(const ReaderParts& spec, int64_t field, int64_t item_bytes) {
  if (field < 0) return;
  CheckField(spec, field, 0);
  const FieldSpec& found = spec.fields[static_cast<size_t>(field)];
  if (found.item_bytes != item_bytes || found.width != 1 || found.num_offsets != 0) {
    throw InvalidArgument("a field has not the shape of what it is for");
  }
}

ReaderParts Checked(ReaderParts spec) {
  if (spec.num_tasks() == 0) throw InvalidArgument("a reader needs at least one column");
  if (spec.num_threads < 1) {
    throw InvalidArgument("num_threads must be at least 1: ", spec.num_threads);
  }
  for (ColumnSpec& column : spec.columns) {
    CheckField(spec, column.field, column.element);
    StoredColumn& stored = column.stored;
    if (stored.paths.empty() && column.file_bits.empty()) {
      stored.paths = {column.request.path};
    }
    const auto num_paths = std::ssize(stored.paths);
    const bool has_place = std::ranges::all_of(
        stored.path_of_file, [&](int32_t number) { return number < num_paths; });
    if (!stored.path_of_file.empty() &&
        (std::ssize(stored.path_of_file) != spec.files->num_files() || !has_place)) {
      throw InvalidArgument(
          "a column that is stored by several paths needs one for each file");
    }
    if (!column.file_bits.empty() &&
        std::ssize(column.file_bits) != spec.files->num_files()) {
      throw InvalidArgument("a column that is not stored needs one value for each file");
    }
  }
  for (const ColumnSpec& column : spec.columns) {
    if (column.request.pack.has_value() != spec.rows_are_packed) {
      throw InvalidArgument("either all columns are packed, or none: ",
                            column.request.path);
    }
  }
  CheckJaggedFields(spec);
  CheckGeneratedField(spec, spec.row_id_field, sizeof(int64_t));
  CheckGeneratedField(spec, spec.row_valid_field, sizeof(bool));
  int64_t num_rows = 0;
  for (int64_t lane = 0; lane < spec.num_lanes(); ++lane) {
    AddLane(&spec, spec.lane(lane));
    num_rows += spec.lane_rows.back();
  }
  CheckBatches(spec, num_rows);
  if (spec.files->fetcher() != nullptr) {
    spec.prefetch_bytes = spec.max_memory_bytes / 4;
    spec.max_memory_bytes -= spec.prefetch_bytes;
  }
  // A page may be larger than batches need, but not by what is claimed alone.
  constexpr int64_t kMinPageBytes = int64_t{64} << 20;
  for (ColumnSpec& column : spec.columns) {
    column.request.max_page_bytes = std::max(spec.max_memory_bytes, kMinPageBytes);
  }
  return spec;
}

}  // namespace

ReaderSpec::ReaderSpec(ReaderParts parts) : ReaderParts(Checked(std::move(parts))) {}

bool ReaderParts::has_windows() const {
  return !share.windows.empty() || std::ranges::any_of(beside, [](const Share& other) {
    return !other.windows.empty();
  });
}

bool ReaderParts::has_orders() const {
  for (int64_t number = 0; number < num_lanes(); ++number) {
    const std::vector<Window>& windows = lane(number).windows;
    if (!windows.empty()) return windows[0].order != nullptr;
  }
  return false;
}

std::vector<bool> AreJagged(const ReaderSpec& spec) {
  std::vector<bool> are_jagged(static_cast<size_t>(spec.num_tasks()));
  for (size_t i = 0; i < spec.columns.size(); ++i) {
    const auto field = static_cast<size_t>(spec.columns[i].field);
    are_jagged[i] = spec.fields[field].num_offsets > 0;
  }
  return are_jagged;
}

}  // namespace torchparquet
