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

// Reads a column that is not stored.
template <typename Out>
class ConstantReader : public ColumnReader {
 public:
  ConstantReader(uint64_t bits, int64_t cell_items)
      : values_(static_cast<Out>(bits), cell_items) {}

  int64_t row() const override { return row_; }
  PagePlace place() const override { return {}; }

 private:
  class Values : public ValueReader<Out> {
   public:
    Values(Out value, int64_t cell_items) : value_(value), cell_items_(cell_items) {}
    void Read(Out* out, int64_t num_values) override {
      std::fill_n(out, num_values * cell_items_, value_);
    }
    void Skip(int64_t) override {}

   private:
    const Out value_;
    const int64_t cell_items_;
  };

  void ReadRows(const RowRange& rows, const ColumnTarget& target, DecodeScratch* scratch,
                DecodeProgress* progress) override {
    SegmentWriter<Out> writer(target, scratch, progress);
    writer.WriteValid(values_, rows.num_rows);
    row_ = rows.end();
  }

  Values values_;
  int64_t row_ = 0;
};

// Reads nulls, of a column that a file lacks.
template <typename Out>
class NullReader : public ColumnReader {
 public:
  NullReader(std::shared_ptr<const ParquetFile> file, const ColumnRequest& column,
             const ColumnStart& start)
      : ColumnReader(std::move(file), column, start, {}), selection_(start.selection) {}

  int64_t row() const override { return row_; }
  PagePlace place() const override { return {}; }

 private:
  void ReadRows(const RowRange& rows, const ColumnTarget& target, DecodeScratch* scratch,
                DecodeProgress* progress) override {
    SegmentWriter<Out> writer(target, scratch, progress, selection_.get());
    writer.WriteNulls(rows.num_rows, rows.begin);
    row_ = rows.end();
  }

  const std::shared_ptr<const RowSelection> selection_;
  int64_t row_ = 0;
};

// Reads rows of variable length, of a column that a file lacks: nulls, or one string or
// list.
class MissingRowsReader : public ColumnReader {
 public:
  MissingRowsReader(std::shared_ptr<const ParquetFile> file, const ColumnRequest& column,
                    const ColumnStart& start)
      : ColumnReader(std::move(file), column, start, {}),
        bytes_(column.default_bytes),
        num_items_(column.default_items),
        is_scalar_(column.is_scalar),
        item_bytes_(static_cast<size_t>(kernels::DtypeBytes(column.dtype))),
        null_rows_are_empty_(column.null_rows_are_empty),
        selection_(start.selection) {}

  int64_t row() const override { return row_; }
  PagePlace place() const override { return {}; }

 private:
  void ReadRows(const RowRange& rows, const ColumnTarget& target, DecodeScratch*,
                DecodeProgress* progress) override {
    if (!bytes_ && !null_rows_are_empty_ && rows.num_rows > 0) {
      if (target.nulls == NullPolicy::kError) {
        const int64_t row = rows.begin;
        throw NullError(selection_ == nullptr ? row : selection_->RowAt(row));
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
      if (segment.valid != nullptr) {
        std::memset(segment.valid, bytes_ ? 1 : 0, num_rows);
      }
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
  const std::shared_ptr<const RowSelection> selection_;
  int64_t row_ = 0;
};

std::unique_ptr<ColumnReader> MakeMissing(const std::shared_ptr<const ParquetFile>& file,
                                          const ColumnRequest& column,
                                          const ColumnStart& start) {
  if (column.num_offsets > 0) {
    return std::make_unique<MissingRowsReader>(file, column, start);
  }
  return kernels::ForItemBytes(kernels::DtypeBytes(column.dtype), [&]<typename Out>(Out) {
    return std::unique_ptr<ColumnReader>(
        std::make_unique<NullReader<Out>>(file, column, start));
  });
}

// Reads a column that is null in all rows.
std::unique_ptr<ColumnReader> MakeNull(const std::shared_ptr<const ParquetFile>& file,
                                       const ColumnRequest& column,
                                       const ColumnStart& start) {
  ColumnRequest nulls = column;
  nulls.default_bytes.reset();
  return MakeMissing(file, nulls, start);
}

std::unique_ptr<ColumnReader> OpenPacked(const std::shared_ptr<const ParquetFile>& file,
                                         const ColumnRequest& column,
                                         const ColumnStart& start,
                                         ColumnBuffers buffers) {
  ColumnRequest lists = column;
  lists.pack.reset();
  lists.list_length = 0;
  lists.num_offsets = 1;
  const bool is_null = file->leaves()[static_cast<size_t>(start.column)].is_null();
  return MakePackedReader(file, column, start,
                          is_null
                              ? MakeNull(file, lists, start)
                              : MakeJaggedReader(file, lists, start, std::move(buffers)));
}

std::string Joined(const std::vector<std::string>& kinds) {
  std::string text;
  for (const std::string& kind : kinds) text += (text.empty() ? "" : " or ") + kind;
  return text;
}

// Throws unless the file's column is as planned.
void CheckLeaf(const LeafColumn& leaf, const ColumnRequest& column) {
  if (std::ranges::find(column.kinds, leaf.kind) == column.kinds.end()) {
    throw CorruptFile("column has kind " + leaf.kind + " but " + Joined(column.kinds) +
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
    if (index < 0) {
      if (column.default_bits) return OpenConstant(column, *column.default_bits);
      if (column.default_bytes || column.missing_is_null) {
        return MakeMissing(file, column,
                           {.row_group = row_group,
                            .column = -1,
                            .place = {},
                            .selection = std::move(selection)});
      }
      throw CorruptFile("column is missing, although it was planned");
    }
    const LeafColumn& leaf = file->leaves()[static_cast<size_t>(index)];
    CheckLeaf(leaf, column);
    const ColumnStart start{.row_group = row_group,
                            .column = index,
                            .place = place,
                            .selection = std::move(selection)};
    if (column.pack) return OpenPacked(file, column, start, std::move(buffers));
    if (leaf.is_null()) return MakeNull(file, column, start);
    const auto make = column.lengths_only      ? MakeListLengthsReader
                      : column.num_offsets > 0 ? MakeJaggedReader
                      : column.list_length > 0 ? MakeFixedListReader
                                               : MakeFlatReader;
    return make(file, column, start, std::move(buffers));
  } catch (...) {
    throw CurrentErrorAt(
        {.path = file->file().path(), .row_group = row_group, .column = column.path});
  }
}

std::unique_ptr<ColumnReader> OpenConstant(const ColumnRequest& column, uint64_t bits) {
  return kernels::ForItemBytes(kernels::DtypeBytes(column.dtype), [&]<typename Out>(Out) {
    return std::unique_ptr<ColumnReader>(std::make_unique<ConstantReader<Out>>(
        bits, column.cell_items * std::max<int64_t>(1, column.list_length)));
  });
}

}  // namespace torchparquet
