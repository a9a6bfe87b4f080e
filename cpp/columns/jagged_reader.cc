#include <algorithm>
#include <cstring>
#include <numeric>
#include <utility>
#include <vector>

#include "base/errors.h"
#include "columns/readers.h"
#include "columns/row_walk.h"
#include "columns/values/item_appender.h"
#include "kernels/count_bytes.h"
#include "kernels/item_types.h"

namespace torchparquet {
namespace {

bool HasStrings(const ColumnRequest& column, const LeafColumn& leaf) {
  if (column.vocabulary != nullptr || column.is_scalar) return false;
  return leaf.is_bytes() ||
         (leaf.holds_nulls() && column.num_offsets > leaf.num_offsets());
}

std::unique_ptr<ItemAppender> MakeAppender(const ColumnRequest& column,
                                           const LeafColumn& leaf,
                                           ColumnBuffers* buffers) {
  if (HasStrings(column, leaf)) return std::make_unique<BytesAppender>(buffers);
  return kernels::ForItemBytes(kernels::DtypeBytes(column.dtype),
                               [&]<typename Out>(Out) -> std::unique_ptr<ItemAppender> {
                                 return std::make_unique<NumberAppender<Out>>(
                                     MakeRequestedValues<Out>(column, leaf, buffers));
                               });
}

void CopyValidity(const ValueRun& run, uint8_t* valid) {
  const auto num_bytes = static_cast<size_t>(run.size);
  if (run.validity == nullptr) {
    std::memset(valid, 1, num_bytes);
  } else {
    std::memcpy(valid, run.validity, num_bytes);
  }
}

class JaggedReader : public RowWalk {
 public:
  JaggedReader(const ColumnRequest& column, ColumnStart start,
               ColumnBuffers buffers_to_use)
      : RowWalk(column, std::move(start), std::move(buffers_to_use)),
        num_lists_(leaf().element_levels.size()),
        has_strings_(HasStrings(column, leaf())),
        null_rows_are_empty_(column.null_rows_are_empty),
        appender_(MakeAppender(column, leaf(), buffers())) {}

 private:
  EntryValues& values() override { return appender_->values(); }

  void WriteRows(const ColumnTarget& target, DecodeProgress* progress) override {
    fails_on_null_ = target.nulls == NullPolicy::kError;
    has_item_valid_ = target.has_item_valid;
    fill_bits_ = target.fill_bits;
    for (const Segment& segment : target.segments) {
      items_ = progress->BeginItems();
      items_.has_strings = has_strings_;
      items_.has_valid = has_item_valid_ && num_lists_ > 0;
      // Offsets are the slab's int64, aligned to 64 bytes.
      row_starts_ = reinterpret_cast<int64_t*>(segment.values);
      row_valid_ = segment.valid;
      TakeRows(segment.num_rows);
      progress->EndItems(std::move(items_));
      progress->SegmentDone();
    }
  }

  void WriteEntries(const LevelBlock& block, int64_t row) override {
    if (num_lists_ == 0 && has_strings_) {
      WriteStrings(block, row);
    } else if (num_lists_ == 0) {
      WriteScalars(block, row);
    } else if (num_lists_ == 1) {
      WriteOneList(block, row);
    } else {
      WriteLists(block, row);
    }
  }

  // Writes rows that are values.
  void WriteStrings(const LevelBlock& block, int64_t row) {
    ValueRun run{.size = block.size, .num_valid = block.size, .fill_bits = fill_bits_};
    if (block.definition != nullptr) {
      const auto max_level = static_cast<uint8_t>(leaf().max_level);
      run.num_valid = kernels::CountEqual(block.definition, block.size, max_level);
      if (run.num_valid < run.size) run.validity = ValidityOf(block);
      if (fails_on_null_ && run.num_valid < run.size) {
        const uint8_t* begin = run.validity;
        throw NullError(StoredRow(row + (std::find(begin, begin + run.size, 0) - begin)));
      }
    }
    appender_->Append(run, scratch(), row_starts_, &*items_.values);
    items_.num_items[0] = static_cast<int64_t>(items_.values->size());
    if (row_valid_ != nullptr) {
      CopyValidity(run, row_valid_);
      row_valid_ += run.size;
    }
    row_starts_ += block.size;
  }

  // Writes rows that are one value each, or none.
  void WriteScalars(const LevelBlock& block, int64_t row) {
    ValueRun run{.size = block.size, .num_valid = block.size, .fill_bits = fill_bits_};
    int64_t* starts = std::exchange(row_starts_, row_starts_ + block.size);
    std::iota(starts, row_starts_, items_.num_items[0]);
    if (block.definition != nullptr) {
      const auto max_level = static_cast<uint8_t>(leaf().max_level);
      run.num_valid = kernels::CountEqual(block.definition, block.size, max_level);
      if (run.num_valid < run.size) {
        const uint8_t* validity = ValidityOf(block);
        if (null_rows_are_empty_) {
          run.size = run.num_valid;
          int64_t next = items_.num_items[0];
          for (int64_t i = 0; i < block.size; ++i) {
            starts[i] = next;
            next += validity[i];
          }
        } else if (fails_on_null_) {
          const uint8_t* end = validity + block.size;
          throw NullError(StoredRow(row + (std::find(validity, end, 0) - validity)));
        } else {
          run.validity = validity;
        }
      }
    }
    AppendValues(run);
    items_.num_items[0] += run.size;
  }

  // Marks the entries that have a value.
  uint8_t* ValidityOf(const LevelBlock& block) {
    uint8_t* validity = scratch()->validity.Reserve(static_cast<size_t>(block.size));
    kernels::MarkEqual(block.definition, block.size,
                       static_cast<uint8_t>(leaf().max_level), validity);
    return validity;
  }

  // Writes rows that are lists of values. As WriteLists, but goes from row to row and not
  // from entry to entry: most lists have many entries.
  void WriteOneList(const LevelBlock& block, int64_t row) {
    if (block.size == 0) return;
    if (fails_on_null_) CheckNoNull(block, row);
    const int64_t first_item = items_.num_items[0];
    const int element_level = leaf().element_levels.front();
    int64_t* starts = row_starts_;
    int64_t num_missing = 0;  // empty and null lists
    bool is_wrong = block.repetition[0] != 0 && num_open_ == 0;
    if (block.definition == nullptr) {
      block.ForEachRow([&](int64_t i) { *starts++ = first_item + i; });
    } else {
      block.ForEachRow([&](int64_t i) {
        *starts++ = first_item + i - num_missing;
        const bool is_missing = block.definition[i] < element_level;
        num_missing += is_missing;
        is_wrong |= is_missing & (block.repetition[std::min(i + 1, block.size - 1)] != 0);
      });
      const int64_t num_elements = kernels::CountAtLeast(
          block.definition, block.size, static_cast<uint8_t>(element_level));
      is_wrong |= num_elements != block.size - num_missing;
    }
    if (is_wrong) return WriteLists(block, row);
    last_defined_ =
        block.definition == nullptr ? leaf().max_level : block.definition[block.size - 1];
    num_open_ = last_defined_ >= element_level ? 1 : 0;
    row_starts_ = starts;
    if (row_valid_ != nullptr) WriteRowValid(block);
    const ValueRun run = ValuesOf(block, num_missing);
    AppendValues(run);
    items_.num_items[0] += run.size;
  }

  // Throws for a null row or element of one list, and names the first such row. `row` is
  // the next row to begin.
  void CheckNoNull(const LevelBlock& block, int64_t row) const {
    if (block.definition == nullptr) return;
    const auto empty_level = static_cast<uint8_t>(leaf().element_levels.front() - 1);
    const auto max_level = static_cast<uint8_t>(leaf().max_level);
    const auto is_null = [&](int64_t i) {
      const bool is_empty = null_rows_are_empty_ ? block.definition[i] <= empty_level
                                                 : block.definition[i] == empty_level;
      return block.definition[i] != max_level && !is_empty;
    };
    const int64_t num_values =
        kernels::CountEqual(block.definition, block.size, max_level);
    const int64_t num_not_null =
        null_rows_are_empty_
            ? num_values + block.size -
                  kernels::CountAtLeast(block.definition, block.size,
                                        static_cast<uint8_t>(empty_level + 1))
            : num_values + kernels::CountEqual(block.definition, block.size, empty_level);
    if (num_not_null == block.size) return;
    for (int64_t i = 0; i < block.size; ++i) {
      row += block.repetition[i] == 0;
      if (is_null(i)) throw NullError(StoredRow(row - 1));
    }
  }

  // Finds null rows of one list.
  void WriteRowValid(const LevelBlock& block) {
    const int null_below = leaf().element_levels.front() - 1;
    const bool may_be_null = block.definition != nullptr && null_below > 0;
    block.ForEachRow([&](int64_t i) {
      *row_valid_++ = !may_be_null || block.definition[i] >= null_below;
    });
  }

  // Returns the values of one list's entries, without the `num_missing` entries that rows
  // without elements have.
  ValueRun ValuesOf(const LevelBlock& block, int64_t num_missing) {
    ValueRun run{.size = block.size - num_missing,
                 .num_valid = block.size,
                 .fill_bits = fill_bits_};
    if (block.definition == nullptr) return run;
    const auto max_level = static_cast<uint8_t>(leaf().max_level);
    run.num_valid = kernels::CountEqual(block.definition, block.size, max_level);
    if (run.num_valid == run.size) return run;
    run.validity = ElementValidity(block, num_missing);
    return run;
  }

  // Marks the elements of one list that have a value. Moves the marks between rows
  // without elements together.
  const uint8_t* ElementValidity(const LevelBlock& block, int64_t num_missing) {
    uint8_t* validity = ValidityOf(block);
    if (num_missing == 0) return validity;
    const int element_level = leaf().element_levels.front();
    int64_t num_kept = 0;
    int64_t begin = 0;
    const auto keep_before = [&](int64_t entry) {
      const int64_t count = entry - begin;
      std::memmove(validity + num_kept, validity + begin, static_cast<size_t>(count));
      num_kept += count;
      begin = entry + 1;
    };
    block.ForEachRow([&](int64_t i) {
      if (block.definition[i] < element_level) keep_before(i);
    });
    keep_before(block.size);
    return validity;
  }

  // The general case. Source: Melnik et al., "Dremel", on repetition and definition
  // levels: an entry that repeats at level r begins a new list at each level above r that
  // its definition level reaches, and is an element of each list from level r on.
  void WriteLists(const LevelBlock& block, int64_t row) {
    uint8_t* validity = scratch()->validity.Reserve(static_cast<size_t>(block.size));
    ValueRun run{.validity = validity, .fill_bits = fill_bits_};
    for (int64_t i = 0; i < block.size; ++i) {
      const auto repeated = static_cast<size_t>(block.repetition[i]);
      const int defined =
          block.definition == nullptr ? leaf().max_level : block.definition[i];
      if (repeated == 0) {
        BeginRow(defined, row++);
      } else if (repeated > num_open_ || defined < leaf().element_levels[repeated - 1]) {
        const bool is_in_null = repeated > num_open_ && num_open_ < num_lists_;
        if (is_in_null &&
            FillsNull(defined, last_defined_, leaf().element_levels[num_open_])) {
          continue;
        }
        ThrowGoesOn();
      }
      last_defined_ = defined;
      num_open_ = OpenLists(repeated, defined);
      if (num_open_ < num_lists_) {
        if (num_open_ > 0) CheckNotNull(defined, num_open_, row - 1);
        continue;
      }
      const bool is_valid = defined == leaf().max_level;
      if (!is_valid && fails_on_null_) throw NullError(StoredRow(row - 1));
      validity[run.size++] = is_valid;
      run.num_valid += is_valid;
    }
    if (run.num_valid == run.size) run.validity = nullptr;
    AppendValues(run);
  }

  // Begins the outermost list of a row.
  void BeginRow(int defined, int64_t row) {
    *row_starts_++ = items_.num_items[0];
    CheckNotNull(defined, 0, row);
    if (row_valid_ != nullptr) *row_valid_++ = defined >= leaf().element_levels[0] - 1;
  }

  // Throws if an entry says that its list at that level is null and nulls are errors.
  void CheckNotNull(int defined, size_t list, int64_t row) const {
    if (fails_on_null_ && !(null_rows_are_empty_ && list == 0) &&
        defined < leaf().element_levels[list] - 1) {
      throw NullError(StoredRow(row));
    }
  }

  // Counts an entry as an element of its lists, from the list that it repeats on, and
  // begins the inner lists. Returns the number of lists that it is an element of.
  size_t OpenLists(size_t repeated, int defined) {
    size_t list = repeated == 0 ? 0 : repeated - 1;
    for (; list < num_lists_; ++list) {
      if (list > 0 && list >= repeated) AppendStart(list, items_.num_items[list]);
      if (defined < leaf().element_levels[list]) break;
      ++items_.num_items[list];
    }
    return list;
  }

  // Appends the start of an inner list.
  void AppendStart(size_t list, int64_t start) {
    std::memcpy(items_.starts[list - 1]->Extend(sizeof(start)), &start, sizeof(start));
  }

  // Appends the values of lists.
  void AppendValues(const ValueRun& run) {
    if (run.size == 0) return;
    int64_t* starts = nullptr;
    if (has_strings_) {
      const size_t num_bytes = static_cast<size_t>(run.size) * sizeof(int64_t);
      // Sinks of starts hold only int64, so all are aligned.
      starts = reinterpret_cast<int64_t*>(items_.starts.back()->Extend(num_bytes));
    }
    if (has_item_valid_) {
      CopyValidity(run, items_.valid->Extend(static_cast<size_t>(run.size)));
    }
    appender_->Append(run, scratch(), starts, &*items_.values);
    if (has_strings_) {
      items_.num_items.back() = static_cast<int64_t>(items_.values->size());
    }
  }

  const size_t num_lists_;
  const bool has_strings_;  // the last offsets lead to bytes
  const bool null_rows_are_empty_;
  const std::unique_ptr<ItemAppender> appender_;
  bool fails_on_null_ = false;
  bool has_item_valid_ = false;
  uint64_t fill_bits_ = 0;
  // The number of lists, outermost first, that the last entry is an element of.
  size_t num_open_ = 0;
  int last_defined_ = 0;  // the definition level of that entry
  // Of the current segment.
  JaggedItems items_;
  int64_t* row_starts_ = nullptr;  // of the next row
  uint8_t* row_valid_ = nullptr;   // null if no mask is wanted
};

}  // namespace

std::unique_ptr<ColumnReader> MakeJaggedReader(const ColumnRequest& column,
                                               ColumnStart start, ColumnBuffers buffers) {
  return std::make_unique<JaggedReader>(column, std::move(start), std::move(buffers));
}

}  // namespace torchparquet
