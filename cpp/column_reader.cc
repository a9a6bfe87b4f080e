#include "column_reader.h"

#include <parquet/column_reader.h>
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
#include "errors.h"
#include "fallback_reader.h"
#include "kernels/validity.h"

namespace torchparquet {
namespace {

// Stands in for a converter where values are single bits.
struct BoolBits {
  using Out = uint8_t;
};

// Which column chunk, and where to start.
struct ReaderStart {
  int64_t row_group;
  int column;
  PagePlace place;
};

template <typename Converter>
class ColumnReaderOf : public ColumnReader {
 public:
  using Out = typename Converter::Out;

  ColumnReaderOf(std::shared_ptr<const ParquetFile> file, const ReaderStart& start,
                 ColumnBuffers buffers_to_use)
      : ColumnReader(std::move(file), std::move(buffers_to_use)),
        descriptor_(*this->file().metadata().schema()->Column(start.column)),
        place_(start.place),
        pages_(this->file(), start.row_group, start.column, this->buffers()),
        dictionary_(&this->buffers()->dictionary),
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
    if constexpr (std::is_same_v<Converter, BoolBits>) {
      throw CorruptFile("a boolean column cannot have a dictionary");
    } else {
      if (has_dictionary_) throw CorruptFile("column chunk has more than one dictionary");
      has_dictionary_ = true;
      if (header.encoding != parquet::Encoding::PLAIN &&
          header.encoding != parquet::Encoding::PLAIN_DICTIONARY) {
        throw CorruptFile("dictionary page is not PLAIN but has encoding number " +
                          std::to_string(header.encoding));
      }
      const auto bytes = pages_.ReadDictionaryPage();
      if (header.num_values * Converter::kStoredBytes >
          static_cast<int64_t>(bytes.size())) {
        throw CorruptFile("dictionary page is too short for its " +
                          std::to_string(header.num_values) + " values");
      }
      dictionary_.Resize(header.num_values);
      // A dictionary of a column without values may have no address.
      if (header.num_values == 0) return;
      Converter::Convert(bytes.data(), header.num_values, dictionary_.values().data());
    }
  }

  void OpenValues(const PageHeader& header) {
    const PageParts parts = pages_.ReadDataPage();
    values_ = ReaderOf(header, parts.values);
    validity_.reset();
    const int max_level = descriptor_.max_definition_level();
    if (max_level == 0) return;
    if (parts.bit_packed_levels) {
      validity_.emplace(RepackLevels(parts.levels, static_cast<int>(header.num_values)),
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

  // Turns levels in the deprecated encoding into one packed run of validity bits.
  std::span<const uint8_t> RepackLevels(std::span<const uint8_t> levels, int num_rows) {
    const int max_level = descriptor_.max_definition_level();
    parquet::LevelDecoder decoder;
    const auto decoded = std::make_unique<int16_t[]>(static_cast<size_t>(num_rows));
    decoder.SetData(parquet::Encoding::BIT_PACKED, static_cast<int16_t>(max_level),
                    num_rows, levels.data(), static_cast<int32_t>(levels.size()));
    if (decoder.Decode(num_rows, decoded.get()) != num_rows) {
      throw CorruptFile("page holds fewer definition levels than rows");
    }
    constexpr size_t kHeaderBytes = 5;
    const size_t num_groups = (static_cast<size_t>(num_rows) + 7) / 8;
    uint8_t* run = buffers()->levels.Reserve(kHeaderBytes + num_groups);
    const size_t header = num_groups << 1 | 1;
    for (size_t i = 0; i < kHeaderBytes; ++i) {
      const int more = i + 1 < kHeaderBytes ? 0x80 : 0;
      run[i] = static_cast<uint8_t>((header >> (7 * i) & 0x7F) | more);
    }
    std::fill_n(run + kHeaderBytes, num_groups, uint8_t{0});
    for (int row = 0; row < num_rows; ++row) {
      const int bit = (decoded[static_cast<size_t>(row)] == max_level) << (row % 8);
      run[kHeaderBytes + static_cast<size_t>(row) / 8] |= static_cast<uint8_t>(bit);
    }
    return {run, kHeaderBytes + num_groups};
  }

  // Opens the values of a page by the class for its encoding. A page of nulls may have
  // no bytes at all, not even an encoding's header.
  std::unique_ptr<ValueReader<Out>> ReaderOf(const PageHeader& header,
                                             std::span<const uint8_t> bytes) const {
    const int encoding = header.encoding;
    if (bytes.empty() || encoding == parquet::Encoding::PLAIN) return OpenPlain(bytes);
    // Without a dictionary page the dictionary is empty, which any index on reading
    // finds out; a page of nulls has none.
    if (encoding == parquet::Encoding::RLE_DICTIONARY ||
        encoding == parquet::Encoding::PLAIN_DICTIONARY) {
      return std::make_unique<DictionaryValueReader<Out>>(bytes, &dictionary_);
    }
    const EncodedPage encoded{bytes, static_cast<int>(header.num_values), encoding};
    if constexpr (std::is_same_v<Converter, BoolBits>) {
      return OpenFallbackBoolReader(encoded, descriptor_);
    } else {
      return OpenFallbackReader<Converter>(encoded, descriptor_);
    }
  }

  static std::unique_ptr<ValueReader<Out>> OpenPlain(std::span<const uint8_t> bytes) {
    if constexpr (std::is_same_v<Converter, BoolBits>) {
      return std::make_unique<PlainBoolReader>(bytes);
    } else {
      return std::make_unique<PlainReader<Converter>>(bytes);
    }
  }

  const parquet::ColumnDescriptor& descriptor_;
  PagePlace place_;  // of the open page; before the first, where to start
  ColumnPages pages_;
  kernels::Dictionary<Out> dictionary_;
  bool started_ = false;
  bool has_dictionary_ = false;
  int64_t row_;
  int64_t page_end_;  // rows before the end of the open page
  std::unique_ptr<ValueReader<Out>> values_;
  std::optional<kernels::ValidityReader> validity_;  // none for a required column
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

std::unique_ptr<ColumnReader> MakeReader(Conversion conversion,
                                         std::shared_ptr<const ParquetFile> file,
                                         const ReaderStart& start,
                                         ColumnBuffers buffers) {
  const auto make = [&]<typename Converter>() -> std::unique_ptr<ColumnReader> {
    return std::make_unique<ColumnReaderOf<Converter>>(std::move(file), start,
                                                       std::move(buffers));
  };
  switch (conversion) {
    case Conversion::kBool:
      return make.operator()<BoolBits>();
    case Conversion::kSame16:
      return make.operator()<kernels::SameBits<uint16_t>>();
    case Conversion::kSame32:
      return make.operator()<kernels::SameBits<uint32_t>>();
    case Conversion::kSame64:
      return make.operator()<kernels::SameBits<uint64_t>>();
    case Conversion::kInt32ToInt8:
      return make.operator()<kernels::NarrowedInt32<int8_t>>();
    case Conversion::kInt32ToUInt8:
      return make.operator()<kernels::NarrowedInt32<uint8_t>>();
    case Conversion::kInt32ToInt16:
      return make.operator()<kernels::NarrowedInt32<int16_t>>();
    case Conversion::kInt32ToUInt16:
      return make.operator()<kernels::NarrowedInt32<uint16_t>>();
    case Conversion::kInt32ToInt64:
      return make.operator()<kernels::WidenedInt32>();
    case Conversion::kUnsupported:
      break;
  }
  throw Error(ErrorKind::kInvalidArgument, "column kind is not covered");
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
    if (index < 0) throw CorruptFile("column is missing, although it was planned");
    const LeafColumn& leaf = file->leaves()[static_cast<size_t>(index)];
    if (leaf.kind != column.kind) {
      throw CorruptFile("column has kind " + leaf.kind + " but " + column.kind +
                        " was planned");
    }
    auto reader =
        MakeReader(leaf.conversion, file, {row_group, index, place}, std::move(buffers));
    reader->error_place_ = error_place;
    return reader;
  } catch (...) {
    throw PlacedError(error_place);
  }
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
