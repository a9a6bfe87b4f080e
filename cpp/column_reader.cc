#include "column_reader.h"

#include <parquet/exception.h>
#include <parquet/metadata.h>
#include <parquet/schema.h>

#include <algorithm>
#include <memory>
#include <optional>
#include <string>
#include <type_traits>
#include <utility>

#include "column_pages.h"
#include "encoded_reader.h"
#include "errors.h"
#include "fallback_reader.h"
#include "kernels/validity.h"
#include "level_repacking.h"

namespace torchparquet {
namespace {

// Which column chunk, and where to start.
struct ReaderStart {
  int64_t row_group;
  int column;
  PagePlace place;
};

// Out is the bit pattern of the output type.
template <typename Out>
class ColumnReaderOf : public ColumnReader {
 public:
  ColumnReaderOf(std::shared_ptr<const ParquetFile> file, const ReaderStart& start,
                 const kernels::Conversion& conversion, ColumnBuffers buffers_to_use)
      : ColumnReader(std::move(file), std::move(buffers_to_use)),
        descriptor_(*this->file().metadata().schema()->Column(start.column)),
        leaf_(this->file().leaves()[static_cast<size_t>(start.column)]),
        conversion_(conversion),
        place_(start.place),
        pages_(this->file(), start.row_group, start.column, this->buffers()),
        dictionary_(&this->buffers()->dictionary),
        fixed_bytes_dictionary_(&this->buffers()->dictionary, &this->buffers()->indices),
        row_(start.place.first_row),
        page_end_(start.place.first_row) {}

  int64_t row() const override { return row_; }
  PagePlace place() const override { return place_; }

 private:
  void ReadRows(const RowRange& rows, const ColumnTarget& target, DecodeScratch* scratch,
                DecodeProgress* progress) override {
    if (target.item_bytes != sizeof(Out)) {
      throw Error(ErrorKind::kInternal, "a field's items are not of its column's size");
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

  // The dictionary stands before everything else, also before a place further on.
  void Start() {
    started_ = true;
    if (place_.offset < 0) return;
    const PageHeader* header = pages_.Next();
    if (header != nullptr && header->kind == PageHeader::Kind::kDictionary) {
      ReadDictionary(*header);
    }
    pages_.Seek(place_.offset);
  }

  // Opens the page that row_ stands in, or the first one that reaches behind the range's
  // begin.
  void OpenPage(const RowRange& rows) {
    while (const PageHeader* header = pages_.Next()) {
      if (header->kind == PageHeader::Kind::kDictionary) {
        ReadDictionary(*header);
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
      if (page_end_ > row_ && page_end_ > rows.begin) return OpenValues(*header);
      row_ = page_end_;
    }
    throw CorruptFile("column chunk ends after " + std::to_string(row_) + " rows of " +
                      std::to_string(rows.end()));
  }

  void ReadDictionary(const PageHeader& header) {
    if (leaf_.stored.stored == kernels::Stored::kBool) {
      throw CorruptFile("a boolean column cannot have a dictionary");
    }
    if (has_dictionary_) throw CorruptFile("column chunk has more than one dictionary");
    has_dictionary_ = true;
    if (header.encoding != parquet::Encoding::PLAIN &&
        header.encoding != parquet::Encoding::PLAIN_DICTIONARY) {
      throw CorruptFile("dictionary page is not PLAIN but has encoding number " +
                        std::to_string(header.encoding));
    }
    const auto bytes = pages_.ReadDictionaryPage();
    // Where values differ in length, each has four bytes at least.
    const int64_t min_bytes = is_binary() ? 4 : conversion_.stored_bytes();
    if (header.num_values * min_bytes > static_cast<int64_t>(bytes.size())) {
      throw CorruptFile("dictionary page is too short for its " +
                        std::to_string(header.num_values) + " values");
    }
    if (is_fixed_bytes()) {
      fixed_bytes_dictionary_.Assign(bytes.data(), header.num_values,
                                     conversion_.stored_bytes());
      return;
    }
    dictionary_.Resize(header.num_values);
    OpenPlain(bytes, header.num_values)
        ->Read(dictionary_.values().data(), header.num_values);
  }

  void OpenValues(const PageHeader& header) {
    const PageParts parts = pages_.ReadDataPage();
    values_ = ReaderOf(header, parts.values);
    validity_.reset();
    const int max_level = descriptor_.max_definition_level();
    if (max_level == 0) return;
    if (parts.bit_packed_levels) {
      validity_.emplace(
          RepackLevels(parts.levels, max_level, static_cast<int>(header.num_values),
                       &buffers()->levels),
          1);
    } else {
      validity_.emplace(parts.levels, max_level);
    }
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

  // Opens the values of a page by the class for its encoding. A page of nulls may have
  // no bytes at all, not even an encoding's header.
  std::unique_ptr<ValueReader<Out>> ReaderOf(const PageHeader& header,
                                             std::span<const uint8_t> bytes) const {
    const int encoding = header.encoding;
    if (bytes.empty()) return std::make_unique<PlainReader<Out>>(bytes, conversion_);
    if (encoding == parquet::Encoding::PLAIN) return OpenPlain(bytes, header.num_values);
    // Without a dictionary page the dictionary is empty, which any index on reading
    // finds out; a page of nulls has none.
    if (encoding == parquet::Encoding::RLE_DICTIONARY ||
        encoding == parquet::Encoding::PLAIN_DICTIONARY) {
      if constexpr (std::is_same_v<Out, uint8_t>) {
        if (is_fixed_bytes()) {
          return std::make_unique<FixedBytesDictionaryReader>(bytes,
                                                              &fixed_bytes_dictionary_);
        }
      }
      return std::make_unique<DictionaryValueReader<Out>>(bytes, &dictionary_);
    }
    if (const auto kernel = KernelFor(encoding)) {
      return std::make_unique<ConvertingReader<Out>>(
          OpenEncodedReader(*kernel, bytes, conversion_.stored_bytes()), conversion_);
    }
    return OpenFallback(bytes, header.num_values, encoding);
  }

  // The kernel for pages of that encoding, if there is one and the type can have it.
  std::optional<KernelEncoding> KernelFor(int encoding) const {
    const parquet::Type::type physical = descriptor_.physical_type();
    const bool is_integer =
        physical == parquet::Type::INT32 || physical == parquet::Type::INT64;
    const bool is_float =
        physical == parquet::Type::FLOAT || physical == parquet::Type::DOUBLE;
    const bool is_fixed = physical == parquet::Type::FIXED_LEN_BYTE_ARRAY;
    switch (encoding) {
      case parquet::Encoding::DELTA_BINARY_PACKED:
        if (is_integer) return KernelEncoding::kDeltaBinaryPacked;
        return std::nullopt;
      case parquet::Encoding::BYTE_STREAM_SPLIT:
        if (is_integer || is_float || is_fixed) return KernelEncoding::kByteStreamSplit;
        return std::nullopt;
      case parquet::Encoding::RLE:
        if (physical == parquet::Type::BOOLEAN) return KernelEncoding::kRleBool;
        return std::nullopt;
      default:
        return std::nullopt;
    }
  }

  std::unique_ptr<ValueReader<Out>> OpenPlain(std::span<const uint8_t> bytes,
                                              int64_t num_values) const {
    if (leaf_.stored.stored == kernels::Stored::kBool) {
      return std::make_unique<ConvertingReader<Out>>(
          std::make_unique<PlainBoolReader>(bytes), conversion_);
    }
    if (is_binary()) return OpenFallback(bytes, num_values, parquet::Encoding::PLAIN);
    return std::make_unique<PlainReader<Out>>(bytes, conversion_);
  }

  std::unique_ptr<ValueReader<Out>> OpenFallback(std::span<const uint8_t> bytes,
                                                 int64_t num_values, int encoding) const {
    const EncodedPage page{bytes, static_cast<int>(num_values), encoding};
    return std::make_unique<ConvertingReader<Out>>(OpenFallbackReader(page, descriptor_),
                                                   conversion_);
  }

  bool is_fixed_bytes() const {
    return leaf_.stored.stored == kernels::Stored::kFixedBytes;
  }
  // Whether values differ in length.
  bool is_binary() const {
    return descriptor_.physical_type() == parquet::Type::BYTE_ARRAY;
  }

  const parquet::ColumnDescriptor& descriptor_;
  const LeafColumn& leaf_;
  const kernels::Conversion conversion_;
  PagePlace place_;  // of the open page; before the first, where to start
  ColumnPages pages_;
  kernels::Dictionary<Out> dictionary_;
  FixedBytesDictionary fixed_bytes_dictionary_;  // instead, for a fixed-size binary
  bool started_ = false;
  bool has_dictionary_ = false;
  int64_t row_;
  int64_t page_end_;  // rows before the end of the open page
  std::unique_ptr<ValueReader<Out>> values_;
  std::optional<kernels::ValidityReader> validity_;  // none for a required column
};

// Stands for a column that is not stored.
template <typename Out>
class ConstantReader : public ColumnReader {
 public:
  ConstantReader(uint64_t bits, int64_t cell_items)
      : ColumnReader(nullptr, {}), values_(static_cast<Out>(bits), cell_items) {}

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

// Whether the exception in flight is Arrow's for a failed allocation.
bool CurrentIsOutOfMemory() {
  try {
    throw;
  } catch (const parquet::ParquetStatusException& error) {
    return error.status().IsOutOfMemory();
  } catch (...) {
    return false;
  }
}

// Turns the exception in flight into an Error placed at `place`.
Error PlacedError(const ErrorPlace& place) {
  if (CurrentIsOutOfMemory()) {
    return Error(ErrorKind::kOutOfMemory, "out of memory while reading", place);
  }
  return CurrentErrorAt(place);
}

std::string Joined(const std::vector<std::string>& kinds) {
  std::string text;
  for (const std::string& kind : kinds) text += (text.empty() ? "" : " or ") + kind;
  return text;
}

// Calls `make` with the bit pattern's type of items of that size.
template <typename Make>
std::unique_ptr<ColumnReader> ForItemBytes(int64_t item_bytes, Make make) {
  switch (item_bytes) {
    case 1:
      return make(uint8_t{});
    case 2:
      return make(uint16_t{});
    case 4:
      return make(uint32_t{});
    default:
      return make(uint64_t{});
  }
}

std::unique_ptr<ColumnReader> MakeReader(std::shared_ptr<const ParquetFile> file,
                                         const ReaderStart& start,
                                         const kernels::Conversion& conversion,
                                         ColumnBuffers buffers) {
  return ForItemBytes(conversion.out_bytes(), [&]<typename Out>(Out) {
    return std::unique_ptr<ColumnReader>(std::make_unique<ColumnReaderOf<Out>>(
        std::move(file), start, conversion, std::move(buffers)));
  });
}

}  // namespace

std::unique_ptr<ColumnReader> ColumnReader::Open(std::shared_ptr<const ParquetFile> file,
                                                 const ColumnRequest& column,
                                                 int64_t row_group,
                                                 const PagePlace& place,
                                                 ColumnBuffers buffers) {
  const ErrorPlace error_place{
      .path = file->file().path(), .row_group = row_group, .column = column.path};
  try {
    // By name: in this file the column may stand elsewhere.
    const int index = file->FindLeaf(column.path);
    if (index < 0) {
      if (column.default_bits) return OpenConstant(column, *column.default_bits);
      throw CorruptFile("column is missing, although it was planned");
    }
    const LeafColumn& leaf = file->leaves()[static_cast<size_t>(index)];
    if (std::ranges::find(column.kinds, leaf.kind) == column.kinds.end()) {
      throw CorruptFile("column has kind " + leaf.kind + " but " + Joined(column.kinds) +
                        " was planned");
    }
    if (leaf.cell_items() != column.cell_items) {
      throw Error(ErrorKind::kInternal, "a field's cells are not of its column's size");
    }
    const auto conversion = leaf.ConversionTo(column.dtype);
    if (!conversion) {
      throw Error(ErrorKind::kInvalidArgument,
                  "column of kind " + leaf.kind + " cannot be read as " +
                      std::string(kernels::DtypeName(column.dtype)));
    }
    auto reader = MakeReader(std::move(file), {row_group, index, place}, *conversion,
                             std::move(buffers));
    reader->error_place_ = error_place;
    return reader;
  } catch (...) {
    throw PlacedError(error_place);
  }
}

std::unique_ptr<ColumnReader> ColumnReader::OpenConstant(const ColumnRequest& column,
                                                         uint64_t bits) {
  return ForItemBytes(kernels::DtypeBytes(column.dtype), [&]<typename Out>(Out) {
    return std::unique_ptr<ColumnReader>(
        std::make_unique<ConstantReader<Out>>(bits, column.cell_items));
  });
}

void ColumnReader::Read(const RowRange& rows, const ColumnTarget& target,
                        DecodeScratch* scratch, DecodeProgress* progress) {
  try {
    ReadRows(rows, target, scratch, progress);
  } catch (...) {
    throw PlacedError(error_place_);
  }
}

}  // namespace torchparquet
