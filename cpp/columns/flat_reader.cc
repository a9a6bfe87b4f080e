#include "columns/flat_reader.h"

#include <algorithm>
#include <optional>
#include <string>
#include <utility>

#include "columns/leaf_values.h"
#include "errors.h"
#include "kernels/levels/validity.h"
#include "pages/column_pages.h"

namespace torchparquet {
namespace {

// Out is the bit pattern of the output type.
template <typename Out>
class FlatReader : public ColumnReader {
 public:
  FlatReader(std::shared_ptr<const ParquetFile> file, const ColumnRequest& column,
             const ColumnStart& start, ColumnBuffers buffers_to_use)
      : ColumnReader(std::move(file), column, start, std::move(buffers_to_use)),
        max_level_(this->file().leaves()[static_cast<size_t>(start.column)].max_level),
        place_(start.place),
        pages_(this->file(), start.row_group, start.column,
               {.max_page_bytes = column.max_page_bytes}, this->buffers()),
        page_values_(
            MakeLeafValues<Out>(this->file(), column, start.column, this->buffers())),
        row_(start.place.first_row),
        page_end_(start.place.first_row) {}

  int64_t row() const override { return row_; }
  PagePlace place() const override { return place_; }

 private:
  int64_t page_reader_bytes() const override { return pages_.page_reader_bytes(); }
  void ReadRows(const RowRange& rows, const ColumnTarget& target, DecodeScratch* scratch,
                DecodeProgress* progress) override {
    if (target.item_bytes != sizeof(Out)) {
      throw Error(ErrorKind::kInternal, "a field's items do not have its column's size");
    }
    pages_.BeginTask(scratch, rows.num_rows);
    if (!started_) Start();
    SegmentWriter<Out> writer(target, scratch, progress);
    while (row_ < rows.end()) {
      if (row_ == page_end_) OpenPage(rows);
      if (row_ < rows.begin) SkipInPage(std::min(rows.begin, page_end_) - row_);
      const int64_t num_rows = std::min(rows.end(), page_end_) - row_;
      if (num_rows > 0) WriteFromPage(num_rows, &writer);
    }
  }

  // The dictionary comes first, also if reading starts at a later place.
  void Start() {
    started_ = true;
    if (place_.offset < 0) return;
    const PageHeader* header = pages_.Next();
    if (header != nullptr && header->kind == PageHeader::Kind::kDictionary) {
      page_values_->ReadDictionary(*header, pages_.ReadDictionaryPage());
    }
    pages_.Seek(place_.offset);
  }

  // Opens the page that row_ stands in, or the first page that reaches past the start of
  // the range.
  void OpenPage(const RowRange& rows) {
    while (const PageHeader* header = pages_.Next(rows.begin - page_end_)) {
      if (header->kind == PageHeader::Kind::kDictionary) {
        page_values_->ReadDictionary(*header, pages_.ReadDictionaryPage());
        continue;
      }
      if (!header->is_data()) continue;
      place_ = {.offset = pages_.page_offset(), .first_row = page_end_};
      page_end_ += header->num_values;
      if (page_end_ > pages_.group_rows()) {
        throw CorruptFile("column chunk holds more rows than its row group: " +
                          std::to_string(page_end_) + ", " +
                          std::to_string(pages_.group_rows()));
      }
      if (page_end_ > row_ && page_end_ > rows.begin) {
        return OpenValues(*header, page_end_ < rows.end());
      }
      row_ = page_end_;
    }
    throw CorruptFile("column chunk ends after " + std::to_string(row_) + " rows of " +
                      std::to_string(rows.end()));
  }

  void OpenValues(const PageHeader& header, bool goes_on) {
    const PageParts parts = pages_.ReadDataPage(goes_on);
    values_ = page_values_->Open(header, parts.values);
    validity_.reset();
    if (max_level_ > 0) validity_.emplace(parts.definition, max_level_);
  }

  void SkipInPage(int64_t num_rows) {
    values_->Skip(validity_ ? validity_->Skip(num_rows) : num_rows);
    row_ += num_rows;
  }

  void WriteFromPage(int64_t num_rows, SegmentWriter<Out>* writer) {
    if (validity_) {
      writer->WriteNullable(*values_, *validity_, num_rows, row_);
    } else {
      writer->WriteValid(*values_, num_rows);
    }
    row_ += num_rows;
  }

  const int max_level_;
  PagePlace place_;  // of the open page; before the first, where to start
  ColumnPages pages_;
  const std::unique_ptr<PageValues<Out>> page_values_;
  bool started_ = false;
  int64_t row_;
  int64_t page_end_;  // rows before the end of the open page
  std::unique_ptr<ValueReader<Out>> values_;
  std::optional<kernels::ValidityReader> validity_;  // none for a required column
};

}  // namespace

std::unique_ptr<ColumnReader> MakeFlatReader(std::shared_ptr<const ParquetFile> file,
                                             const ColumnRequest& column,
                                             const ColumnStart& start,
                                             ColumnBuffers buffers) {
  return ForItemBytes(kernels::DtypeBytes(column.dtype), [&]<typename Out>(Out) {
    return std::unique_ptr<ColumnReader>(std::make_unique<FlatReader<Out>>(
        std::move(file), column, start, std::move(buffers)));
  });
}

}  // namespace torchparquet
