#include "reader/window_memory.h"

#include <algorithm>
#include <cmath>
#include <functional>

#include "reader/windows/window_cells.h"
#include "reader/windows/window_places.h"

namespace torchparquet {
namespace {

// In floating point: footers may claim rows of more bytes than can be counted.
double Aligned(int64_t num_rows, int64_t row_bytes) {
  constexpr auto kAlignment = static_cast<double>(BatchLayout::kFieldAlignment);
  const double num_bytes = static_cast<double>(num_rows) * static_cast<double>(row_bytes);
  return std::ceil(num_bytes / kAlignment) * kAlignment;
}

// Of the columns that take most, one entry each.
double MostStagedRowBytes(const std::vector<FieldSpec>& fields, bool has_orders) {
  std::vector<double> staged;
  for (const FieldSpec& field : fields) {
    const std::optional<double> row_bytes = StagedRowBytes(field, has_orders);
    if (!row_bytes) continue;
    const int64_t num_columns = std::min(field.width, kLeastStagedColumns);
    staged.insert(staged.end(), static_cast<size_t>(num_columns), *row_bytes);
  }
  std::ranges::sort(staged, std::greater());
  staged.resize(static_cast<size_t>(kLeastStagedColumns));
  double sum = 0;
  for (const double row_bytes : staged) sum += row_bytes;
  return sum;
}

}  // namespace

std::optional<double> StagedRowBytes(const FieldSpec& field, bool has_order) {
  const auto valid_bytes = static_cast<double>(field.has_valid ? field.valid_items : 0);
  if (field.num_offsets > 0) {
    return sizeof(int64_t) + field.column_row_bytes() + valid_bytes;
  }
  const int64_t cell_bytes = field.cell_items * field.item_bytes;
  if (!has_order && !WindowCells::AreItems(cell_bytes)) return std::nullopt;
  return static_cast<double>(cell_bytes) + valid_bytes;
}

double TensorBytes(const std::vector<FieldSpec>& fields, int64_t num_rows) {
  double num_bytes = 0;
  for (const FieldSpec& field : fields) {
    num_bytes += Aligned(num_rows, field.width * field.cell_items * field.item_bytes);
    if (field.has_valid) num_bytes += Aligned(num_rows, field.width * field.valid_items);
  }
  return num_bytes;
}

double WindowRowBytes(const std::vector<FieldSpec>& fields, int64_t batch_rows,
                      bool has_orders) {
  double items_bytes = 0;
  for (const FieldSpec& field : fields) items_bytes += field.row_bytes;
  // Offsets are one more than rows.
  const double batch_bytes =
      TensorBytes(fields, batch_rows + 1) + static_cast<double>(kBookkeepingBytes);
  return items_bytes + batch_bytes / static_cast<double>(batch_rows) +
         MostStagedRowBytes(fields, has_orders) +
         static_cast<double>(WindowPlaces::kRowBytes);
}

}  // namespace torchparquet
