#include "columns/open_column.h"

#include <algorithm>
#include <cstring>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/errors.h"
#include "columns/readers.h"

namespace torchparquet {
namespace {

// Reads a column that a file, or every file, lacks: one value in all rows, or nulls.
template <typename Out>
class ConstantReader : public ColumnReader {
 public:
  ConstantReader(const ColumnRequest& column, ColumnStart start_at,
                 std::optional<uint64_t> bits)
      : ColumnReader(column, std::move(start_at)), bits_(bits) {}

  int64_t row() const override { return row_; }

 private:
  void ReadRows(const RowRange& rows, const ColumnTarget& target, DecodeScratch* scratch,
                DecodeProgress* progress) override {
    SegmentWriter<Out> writer(target, scratch, progress, start().selection.get());
    writer.WriteConstant(bits_, rows.num_rows, rows.begin);
    row_ = rows.end();
  }

  const std::optional<uint64_t> bits_;  // nothing: nulls
  int64_t row_ = 0;
};

std::unique_ptr<ColumnReader> MakeConstant(const ColumnRequest& column, ColumnStart start,
                                           std::optional<uint64_t> bits) {
  return MakeForItems<ConstantReader>(column, std::move(start), bits);
}

// Reads rows of variable length, of a column that a file lacks: nulls, or one string or
// list.
class MissingRowsReader : public ColumnReader {
 public:
  MissingRowsReader(const ColumnRequest& column, ColumnStart start_at)
      : ColumnReader(column, std::move(start_at)),
        bytes_(column.default_bytes),
        num_items_(column.default_items),
        is_scalar_(column.is_scalar),
        item_bytes_(static_cast<size_t>(kernels::DtypeBytes(column.dtype))),
        null_rows_are_empty_(column.null_rows_are_empty) {}

  int64_t row() const override { return row_; }

 private:
  void ReadRows(const RowRange& rows, const ColumnTarget& target, DecodeScratch*,
                DecodeProgress* progress) override {
    if (!bytes_ && !null_rows_are_empty_ && rows.num_rows > 0) {
      if (target.nulls == NullPolicy::kError) {
        const RowSelection* selection = start().selection.get();
        throw NullError(selection == nullptr ? rows.begin : selection->RowAt(rows.begin));
      }
      if (is_scalar_) {  // a null is one value
        std::string fill(item_bytes_, '\0');
        std::memcpy(fill.data(), &target.fill_bits, item_bytes_);
        bytes_ = std::move(fill);
        num_items_ = 1;
      }
    }
    has_item_valid_ = target.has_item_valid;
    for (const Segment& segment : target.segments) {
      JaggedItems items = progress->BeginItems();
      // Offsets are the slab's int64, aligned to 64 bytes.
      auto* starts = reinterpret_cast<int64_t*>(segment.values);
      const auto num_rows = static_cast<size_t>(segment.num_rows);
      std::fill_n(starts, num_rows, 0);
      if (bytes_) AppendDefault(num_rows, starts, &items);
      if (segment.valid != nullptr) std::memset(segment.valid, bytes_ ? 1 : 0, num_rows);
      progress->EndItems(std::move(items));
      progress->SegmentDone();
    }
    row_ = rows.end();
  }

  void AppendDefault(size_t num_rows, int64_t* starts, JaggedItems* items) const {
    items->has_strings = !num_items_;
    items->has_valid = num_items_ && has_item_valid_;
    if (bytes_->empty()) return;
    const auto num_items =
        static_cast<size_t>(num_items_.value_or(static_cast<int64_t>(bytes_->size())));
    uint8_t* bytes = items->values->Extend(num_rows * bytes_->size());
    for (size_t i = 0; i < num_rows; ++i) {
      starts[i] = static_cast<int64_t>(i * num_items);
      std::ranges::copy(*bytes_, bytes + i * bytes_->size());
    }
    if (items->has_valid) {
      std::memset(items->valid->Extend(num_rows * num_items), 1, num_rows * num_items);
    }
    items->num_items.front() = static_cast<int64_t>(num_rows * num_items);
  }

  std::optional<std::string> bytes_;
  std::optional<int64_t> num_items_;  // that the bytes hold; none: they are a string
  const bool is_scalar_;
  const size_t item_bytes_;
  const bool null_rows_are_empty_;
  bool has_item_valid_ = false;
  int64_t row_ = 0;
};

std::unique_ptr<ColumnReader> MakeMissing(const ColumnRequest& column,
                                          ColumnStart start) {
  if (column.num_offsets == 0) return MakeConstant(column, std::move(start), {});
  return std::make_unique<MissingRowsReader>(column, std::move(start));
}

// Reads a column that is null in all rows.
std::unique_ptr<ColumnReader> MakeNull(const ColumnRequest& column, ColumnStart start) {
  ColumnRequest nulls = column;
  nulls.default_bytes.reset();
  return MakeMissing(nulls, std::move(start));
}

std::unique_ptr<ColumnReader> OpenPacked(const ColumnRequest& column,
                                         const ColumnStart& start,
                                         ColumnBuffers buffers) {
  ColumnRequest lists = column;
  lists.pack.reset();
  lists.list_length = 0;
  lists.num_offsets = 1;
  return MakePackedReader(column, start,
                          start.leaf().is_null()
                              ? MakeNull(lists, start)
                              : MakeJaggedReader(lists, start, std::move(buffers)));
}

std::string Joined(const std::vector<std::string>& kinds) {
  std::string text;
  for (const std::string& kind : kinds) text += (text.empty() ? "" : " or ") + kind;
  return text;
}

// Throws unless the file's column is as planned.
void CheckLeaf(const LeafColumn& leaf, const ColumnRequest& column) {
  if (std::ranges::find(column.kinds, leaf.kind) == column.kinds.end()) {
    throw CorruptFile("column has kind ", leaf.kind, " but ", Joined(column.kinds),
                      " was planned");
  }
  if (leaf.is_null()) return;
  const bool as_codes = leaf.is_bytes() && column.vocabulary != nullptr;
  const bool is_fixed_list = column.list_length > 0;
  // Lists of nulls may be strings.
  const bool as_strings = leaf.holds_nulls() && column.num_offsets > 0 &&
                          column.vocabulary == nullptr && !column.is_scalar &&
                          leaf.num_offsets() + 1 == column.num_offsets;
  const int64_t num_offsets =
      leaf.num_offsets() + as_strings + column.is_scalar - as_codes - is_fixed_list;
  if (num_offsets != column.num_offsets ||
      (is_fixed_list && (leaf.element_levels.size() != 1 || column.num_offsets > 0)) ||
      (leaf.cell_items() != column.cell_items && !leaf.holds_nulls())) {
    throw Error(ErrorKind::kInternal, "a field does not have the shape of its column");
  }
}

}  // namespace

std::unique_ptr<ColumnReader> OpenColumn(const std::shared_ptr<const ParquetFile>& file,
                                         const ColumnRequest& column, int64_t row_group,
                                         const PagePlace& place, ColumnBuffers buffers,
                                         std::shared_ptr<const RowSelection> selection,
                                         const StoredColumn* stored,
                                         int64_t file_number) {
  try {
    // By name: the column may have another number in this file.
    const std::string* path = stored == nullptr ? &column.path : stored->In(file_number);
    const int index = path == nullptr ? -1 : file->FindLeaf(*path);
    ColumnStart start{.file = file,
                      .row_group = row_group,
                      .column = index,
                      .place = place,
                      .selection = std::move(selection)};
    if (index < 0) {
      if (column.default_bits) return OpenConstant(column, *column.default_bits);
      if (column.default_bytes || column.missing_is_null) {
        return MakeMissing(column, std::move(start));
      }
      throw CorruptFile("column is missing, although it was planned");
    }
    CheckLeaf(start.leaf(), column);
    if (column.pack) return OpenPacked(column, start, std::move(buffers));
    if (start.leaf().is_null()) return MakeNull(column, std::move(start));
    const auto make = column.lengths_only      ? MakeListLengthsReader
                      : column.num_offsets > 0 ? MakeJaggedReader
                      : column.list_length > 0 ? MakeFixedListReader
                                               : MakeFlatReader;
    return make(column, std::move(start), std::move(buffers));
  } catch (...) {
    throw CurrentErrorAt(
        {.path = file->file().path(), .row_group = row_group, .column = column.path});
  }
}

std::unique_ptr<ColumnReader> OpenConstant(const ColumnRequest& column, uint64_t bits) {
  return MakeConstant(column, {}, bits);
}

}  // namespace torchparquet
