#include "column_decoder.h"

#include <parquet/column_page.h>
#include <parquet/column_reader.h>
#include <parquet/exception.h>
#include <parquet/metadata.h>
#include <parquet/schema.h>

#include <algorithm>
#include <memory>
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

// Decodes the pages of one column chunk. One use, one thread.
template <typename Converter>
class PageDecoder {
 public:
  using Out = typename Converter::Out;

  PageDecoder(const parquet::ColumnDescriptor& descriptor, DecodeScratch* scratch)
      : descriptor_(descriptor), scratch_(scratch), dictionary_(&scratch->dictionary) {}

  void ReadDictionary(const parquet::DictionaryPage& page) {
    if constexpr (std::is_same_v<Converter, BoolBits>) {
      throw CorruptFile("a boolean column cannot have a dictionary");
    } else {
      const int64_t num_values = page.num_values();
      if (num_values < 0 || num_values * Converter::kStoredBytes > page.size()) {
        throw CorruptFile("dictionary page is too short for its " +
                          std::to_string(num_values) + " values");
      }
      dictionary_.Resize(num_values);
      Converter::Convert(page.data(), num_values, dictionary_.values().data());
    }
  }

  // Delivers the rows [begin, end) of the page. `first_row` is the page's first row
  // within its row group.
  void ReadRows(const parquet::DataPage& page, const PageParts& parts, int64_t first_row,
                int64_t begin, int64_t end, SegmentWriter<Out>* writer) {
    const int max_level = descriptor_.max_definition_level();
    const auto reader = OpenValues(page, parts.values);
    if (max_level == 0) {
      reader->Skip(begin);
      writer->WriteValid(*reader, end - begin);
      return;
    }
    kernels::ValidityReader validity =
        parts.bit_packed_levels
            ? kernels::ValidityReader(RepackLevels(parts.levels, page.num_values()), 1)
            : kernels::ValidityReader(parts.levels, max_level);
    reader->Skip(validity.Skip(begin));
    writer->WriteNullable(*reader, validity, end - begin, first_row + begin);
  }

 private:
  // Turns levels in the deprecated encoding into one packed run of validity bits.
  std::span<const uint8_t> RepackLevels(std::span<const uint8_t> levels,
                                        int num_rows) const {
    const int max_level = descriptor_.max_definition_level();
    parquet::LevelDecoder decoder;
    auto* decoded = scratch_->stored.ReserveItems<int16_t>(num_rows);
    decoder.SetData(parquet::Encoding::BIT_PACKED, static_cast<int16_t>(max_level),
                    num_rows, levels.data(), static_cast<int32_t>(levels.size()));
    if (decoder.Decode(num_rows, decoded) != num_rows) {
      throw CorruptFile("page holds fewer definition levels than rows");
    }
    constexpr size_t kHeaderBytes = 5;
    const size_t num_groups = (static_cast<size_t>(num_rows) + 7) / 8;
    uint8_t* run = scratch_->levels.Reserve(kHeaderBytes + num_groups);
    const size_t header = num_groups << 1 | 1;
    for (size_t i = 0; i < kHeaderBytes; ++i) {
      const int more = i + 1 < kHeaderBytes ? 0x80 : 0;
      run[i] = static_cast<uint8_t>((header >> (7 * i) & 0x7F) | more);
    }
    std::fill_n(run + kHeaderBytes, num_groups, uint8_t{0});
    for (int row = 0; row < num_rows; ++row) {
      const int bit = (decoded[row] == max_level) << (row % 8);
      run[kHeaderBytes + static_cast<size_t>(row) / 8] |= static_cast<uint8_t>(bit);
    }
    return {run, kHeaderBytes + num_groups};
  }

  // Opens the values of a page by the class for its encoding. A page of nulls may have
  // no bytes at all, not even an encoding's header.
  std::unique_ptr<ValueReader<Out>> OpenValues(const parquet::DataPage& page,
                                               std::span<const uint8_t> bytes) const {
    const parquet::Encoding::type encoding = page.encoding();
    if (bytes.empty() || encoding == parquet::Encoding::PLAIN) return OpenPlain(bytes);
    // Without a dictionary page the dictionary is empty, which any index on reading
    // finds out; a page of nulls has none.
    if (encoding == parquet::Encoding::RLE_DICTIONARY ||
        encoding == parquet::Encoding::PLAIN_DICTIONARY) {
      return std::make_unique<DictionaryValueReader<Out>>(bytes, &dictionary_);
    }
    const EncodedPage encoded{bytes, page.num_values(), encoding};
    if constexpr (std::is_same_v<Converter, BoolBits>) {
      return OpenFallbackBoolReader(encoded, descriptor_);
    } else {
      return OpenFallbackReader<Converter>(encoded, descriptor_, &scratch_->stored);
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
  DecodeScratch* scratch_;
  kernels::Dictionary<Out> dictionary_;
};

// Everything that decoding one column chunk needs, whatever its type.
struct DecodeJob {
  const ParquetFile* file;
  int column;
  RowRange rows;
  const ColumnTarget* target;
  DecodeScratch* scratch;
  DecodeProgress* progress;
};

// Counts the rows of the pages as they are announced, and skips those that end before
// the range begins. Throws Error(kCorruptFile) for a page that claims rows beyond the
// row group, before any of its rows is delivered.
class PageRows {
 public:
  PageRows(int64_t begin, int64_t group_rows) : begin_(begin), group_rows_(group_rows) {}

  bool Skip(const parquet::DataPageStats& page) {
    if (page.num_values < 0) throw CorruptFile("page claims a negative number of values");
    page_begin_ = page_end_;
    page_end_ += page.num_values;
    if (page_end_ > group_rows_) {
      throw CorruptFile("column chunk holds more rows than its row group: " +
                        std::to_string(page_end_) + ", " + std::to_string(group_rows_));
    }
    return page_end_ <= begin_;
  }

  int64_t page_begin() const { return page_begin_; }
  int64_t page_end() const { return page_end_; }

 private:
  const int64_t begin_;
  const int64_t group_rows_;
  int64_t page_begin_ = 0;
  int64_t page_end_ = 0;
};

Error TooFewRows(int64_t found, int64_t wanted) {
  return CorruptFile("column chunk ends after " + std::to_string(found) + " rows of " +
                     std::to_string(wanted));
}

template <typename Converter>
void RunDecodeJob(const DecodeJob& job) {
  if (job.target->item_bytes != sizeof(typename Converter::Out)) {
    throw Error(ErrorKind::kInternal, "a field's items are not of its column's size");
  }
  const parquet::FileMetaData& metadata = job.file->metadata();
  PageRows page_rows(job.rows.begin,
                     metadata.RowGroup(static_cast<int>(job.rows.row_group))->num_rows());
  ColumnPages pages(
      *job.file, job.rows.row_group, job.column,
      [&](const parquet::DataPageStats& page) { return page_rows.Skip(page); },
      job.scratch);
  PageDecoder<Converter> decoder(*metadata.schema()->Column(job.column), job.scratch);
  SegmentWriter<typename Converter::Out> writer(*job.target, job.scratch, job.progress);

  const int64_t end = job.rows.begin + job.rows.num_rows;
  int64_t row = job.rows.begin;
  while (row < end) {
    const auto page = pages.Next();
    if (page == nullptr) throw TooFewRows(row, end);
    if (page->type() == parquet::PageType::DICTIONARY_PAGE) {
      decoder.ReadDictionary(static_cast<const parquet::DictionaryPage&>(*page));
      continue;
    }
    if (page->type() != parquet::PageType::DATA_PAGE &&
        page->type() != parquet::PageType::DATA_PAGE_V2) {
      continue;
    }
    const int64_t page_begin = page_rows.page_begin();
    const int64_t stop = std::min(end, page_rows.page_end());
    const auto& data_page = static_cast<const parquet::DataPage&>(*page);
    decoder.ReadRows(data_page, pages.Split(data_page), page_begin, row - page_begin,
                     stop - page_begin, &writer);
    row = stop;
  }
}

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

void RunDecodeJob(Conversion conversion, const DecodeJob& job) {
  switch (conversion) {
    case Conversion::kBool:
      return RunDecodeJob<BoolBits>(job);
    case Conversion::kSame16:
      return RunDecodeJob<kernels::SameBits<uint16_t>>(job);
    case Conversion::kSame32:
      return RunDecodeJob<kernels::SameBits<uint32_t>>(job);
    case Conversion::kSame64:
      return RunDecodeJob<kernels::SameBits<uint64_t>>(job);
    case Conversion::kInt32ToInt8:
      return RunDecodeJob<kernels::NarrowedInt32<int8_t>>(job);
    case Conversion::kInt32ToUInt8:
      return RunDecodeJob<kernels::NarrowedInt32<uint8_t>>(job);
    case Conversion::kInt32ToInt16:
      return RunDecodeJob<kernels::NarrowedInt32<int16_t>>(job);
    case Conversion::kInt32ToUInt16:
      return RunDecodeJob<kernels::NarrowedInt32<uint16_t>>(job);
    case Conversion::kInt32ToInt64:
      return RunDecodeJob<kernels::WidenedInt32>(job);
    case Conversion::kUnsupported:
      break;
  }
  throw Error(ErrorKind::kInvalidArgument, "column kind is not covered");
}

}  // namespace

void DecodeColumn(const ParquetFile& file, const ColumnRequest& column,
                  const RowRange& rows, const ColumnTarget& target,
                  DecodeScratch* scratch, DecodeProgress* progress) {
  try {
    // By name: in this file the column may stand elsewhere.
    const int index = file.FindLeaf(column.path);
    if (index < 0) throw CorruptFile("column is missing, although it was planned");
    const LeafColumn& leaf = file.leaves()[static_cast<size_t>(index)];
    if (leaf.kind != column.kind) {
      throw CorruptFile("column has kind " + leaf.kind + " but " + column.kind +
                        " was planned");
    }
    RunDecodeJob(leaf.conversion, {.file = &file,
                                   .column = index,
                                   .rows = rows,
                                   .target = &target,
                                   .scratch = scratch,
                                   .progress = progress});
  } catch (...) {
    const ErrorPlace place{
        .path = file.file().path(), .row_group = rows.row_group, .column = column.path};
    if (CurrentIsOutOfMemory()) {
      throw Error(ErrorKind::kOutOfMemory, "out of memory while reading", place);
    }
    throw CurrentErrorAt(place);
  }
}

}  // namespace torchparquet
