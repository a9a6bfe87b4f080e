#include <algorithm>
#include <optional>
#include <string>
#include <utility>

#include "base/errors.h"
#include "columns/readers.h"
#include "columns/row_walk.h"
#include "kernels/levels/level_reader.h"
#include "kernels/levels/selected.h"

namespace torchparquet {
namespace {

// Out is the bit pattern of the output type.
template <typename Out>
class FlatReader : public PagedReader {
 public:
  FlatReader(const ColumnRequest& column, ColumnStart start_at,
             ColumnBuffers buffers_to_use)
      : PagedReader(column, std::move(start_at), std::move(buffers_to_use)),
        max_level_(start().leaf().max_level),
        values_(MakeRequestedValues<Out>(column, start().leaf(), buffers())),
        stored_end_(place_.first_row),
        row_(IndexOf(stored_end_)),
        page_end_(row_) {}

  int64_t row() const override { return row_; }

 private:
  void ReadRows(const RowRange& rows, const ColumnTarget& target, DecodeScratch* scratch,
                DecodeProgress* progress) override {
    if (target.item_bytes != sizeof(Out)) {
      throw Error(ErrorKind::kInternal, "a field's items do not have its column's size");
    }
    BeginTask(rows, scratch, values_.get());
    SegmentWriter<Out> writer(target, scratch, progress, selection_);
    while (row_ < rows.end()) {
      if (row_ == page_end_) OpenPage(rows);
      if (row_ < rows.begin) SkipInPage(std::min(rows.begin, page_end_) - row_);
      const int64_t num_rows = std::min(rows.end(), page_end_) - row_;
      if (num_rows > 0) WriteFromPage(num_rows, &writer);
    }
  }

  // Opens the page that row_ stands in, or the first page that reaches past the start of
  // the range.
  void OpenPage(const RowRange& rows) {
    const int64_t first_stored = RowAt(std::max(row_, rows.begin));
    while (true) {
      if (const auto first_row = pages_.SeekRow(first_stored)) {
        stored_end_ = *first_row;
        row_ = IndexOf(stored_end_);
      }
      const PageHeader* header = pages_.Next(first_stored - stored_end_);
      if (header == nullptr) break;
      if (header->kind == PageHeader::Kind::kDictionary) {
        values_->ReadDictionary(*header, pages_.ReadDictionaryPage());
        continue;
      }
      if (!header->is_data()) continue;
      TakePage(*header, stored_end_);
      stored_end_ += header->num_values;
      page_end_ = IndexOf(stored_end_);
      if (page_end_ > row_ && page_end_ > rows.begin) {
        return OpenValues(*header, GoesOn(*header, rows.end()));
      }
      row_ = page_end_;
    }
    throw CorruptFile("column chunk ends after ", stored_end_, " rows of ",
                      RowAt(rows.end() - 1) + 1);
  }

  // Returns whether the next page, if it is as long, has rows before `end_row`.
  bool GoesOn(const PageHeader& header, int64_t end_row) const {
    return page_end_ < end_row &&
           (selection_ == nullptr || RowAt(page_end_) < stored_end_ + header.num_values);
  }

  void OpenValues(const PageHeader& header, bool goes_on) {
    const PageParts parts = pages_.ReadDataPage(goes_on);
    values_->Open(header, parts.values);
    validity_.reset();
    if (max_level_ > 0) validity_.emplace(parts.definition, max_level_);
    if (selection_ != nullptr && page_end_ - row_ < header.num_values) {
      SelectValues(header.num_values);
    }
  }

  // Leaves the selected rows of a page, as if it held no others.
  void SelectValues(int64_t num_rows) {
    const int64_t num_words = kernels::NumWords(num_rows);
    // Selected rows, their values, and room for a run's header before their validity.
    auto* rows =
        buffers()->selected.template ReserveItems<kernels::BitWord>(3 * num_words + 1);
    selection_->CopyBits(stored_end_ - num_rows, stored_end_, rows);
    if (!validity_ || validity_->ValidRun() >= num_rows) {
      return values_->Select({rows, static_cast<size_t>(num_words)}, num_rows);
    }
    auto* values = rows + num_words;
    auto* valid = values + num_words + 1;
    uint8_t* bytes = scratch_->validity.Reserve(static_cast<size_t>(num_rows));
    validity_->ReadValidity(num_rows, bytes);
    const auto found =
        kernels::SelectRows({bytes, static_cast<size_t>(num_rows)}, rows, values, valid);
    validity_.emplace(kernels::AsPackedRun(valid, found.num_rows), 1);
    values_->Select({values, static_cast<size_t>(kernels::NumWords(found.num_values))},
                    found.num_values);
  }

  void SkipInPage(int64_t num_rows) {
    values_->Skip(validity_ ? validity_->Skip(num_rows) : num_rows);
    row_ += num_rows;
  }

  void WriteFromPage(int64_t num_rows, SegmentWriter<Out>* writer) {
    try {
      if (validity_) {
        writer->WriteNullable(values_->reader(), *validity_, num_rows, row_);
      } else {
        writer->WriteValid(values_->reader(), num_rows);
      }
    } catch (const Error& error) {
      if (error.value() < 0) throw;
      throw error.WithRow(RowAt(row_ + error.value()));
    }
    row_ += num_rows;
  }

  const int max_level_;
  const std::unique_ptr<PageValues<Out>> values_;
  int64_t stored_end_;  // stored rows before the end of the open page
  int64_t row_;
  int64_t page_end_;                              // rows before the end of the open page
  std::optional<kernels::LevelReader> validity_;  // none for a required column
};

}  // namespace

std::unique_ptr<ColumnReader> MakeFlatReader(const ColumnRequest& column,
                                             ColumnStart start, ColumnBuffers buffers) {
  return MakeForItems<FlatReader>(column, std::move(start), std::move(buffers));
}

}  // namespace torchparquet
