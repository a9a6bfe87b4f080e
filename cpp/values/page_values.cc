#include "values/page_values.h"

#include <parquet/schema.h>
#include <parquet/types.h>

#include <optional>
#include <string>
#include <type_traits>

#include "errors.h"
#include "values/encoded_reader.h"
#include "values/fallback_reader.h"
#include "values/fixed_bytes_dictionary.h"

namespace torchparquet {
namespace {

// The kernel for pages of that encoding, if there is one that the type can have.
std::optional<KernelEncoding> KernelFor(parquet::Type::type physical, int encoding) {
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

template <typename Out>
class FixedSizeValues : public PageValues<Out> {
 public:
  FixedSizeValues(const parquet::ColumnDescriptor& descriptor,
                  const kernels::Conversion& conversion, ColumnBuffers* buffers)
      : descriptor_(descriptor),
        conversion_(conversion),
        dictionary_(&buffers->dictionary),
        fixed_bytes_dictionary_(&buffers->dictionary, &buffers->indices) {}

  void ReadDictionary(const PageHeader& header, std::span<const uint8_t> bytes) override {
    if (descriptor_.physical_type() == parquet::Type::BOOLEAN) {
      throw CorruptFile("a boolean column cannot have a dictionary");
    }
    CheckDictionaryHeader(header, has_dictionary_);
    has_dictionary_ = true;
    // Values of different lengths have at least four bytes each.
    const int64_t min_bytes = is_binary() ? 4 : conversion_.stored_bytes();
    if (header.num_values * min_bytes > static_cast<int64_t>(bytes.size())) {
      throw CorruptFile("dictionary page is too short for its " +
                        std::to_string(header.num_values) + " values");
    }
    if (is_cell()) {
      fixed_bytes_dictionary_.Assign(bytes.data(), header.num_values,
                                     conversion_.stored_bytes());
      return;
    }
    dictionary_.Resize(header.num_values);
    OpenPlain(bytes, header.num_values)
        ->Read(dictionary_.values().data(), header.num_values);
  }

  // A page of nulls may have no bytes, not even the header of an encoding.
  std::unique_ptr<ValueReader<Out>> Open(const PageHeader& header,
                                         std::span<const uint8_t> bytes) override {
    const int encoding = header.encoding;
    if (bytes.empty()) return std::make_unique<PlainReader<Out>>(bytes, conversion_);
    if (encoding == parquet::Encoding::PLAIN) return OpenPlain(bytes, header.num_values);
    // Without a dictionary page the dictionary is empty: reading any index throws, and a
    // page of nulls has none.
    if (encoding == parquet::Encoding::RLE_DICTIONARY ||
        encoding == parquet::Encoding::PLAIN_DICTIONARY) {
      if constexpr (std::is_same_v<Out, uint8_t>) {
        if (is_cell()) {
          return std::make_unique<FixedBytesDictionaryReader>(bytes,
                                                              &fixed_bytes_dictionary_);
        }
      }
      return std::make_unique<DictionaryValueReader<Out>>(bytes, &dictionary_);
    }
    if (const auto kernel = KernelFor(descriptor_.physical_type(), encoding)) {
      return std::make_unique<ConvertingReader<Out>>(
          OpenEncodedReader(*kernel, bytes, conversion_.stored_bytes()), conversion_);
    }
    return OpenFallback(bytes, header.num_values, encoding);
  }

 private:
  std::unique_ptr<ValueReader<Out>> OpenPlain(std::span<const uint8_t> bytes,
                                              int64_t num_values) const {
    if (descriptor_.physical_type() == parquet::Type::BOOLEAN) {
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

  // True if a value is several items.
  bool is_cell() const { return conversion_.is_cell(); }
  // True if stored values differ in length.
  bool is_binary() const {
    return descriptor_.physical_type() == parquet::Type::BYTE_ARRAY;
  }

  const parquet::ColumnDescriptor& descriptor_;
  const kernels::Conversion conversion_;
  kernels::Dictionary<Out> dictionary_;
  FixedBytesDictionary fixed_bytes_dictionary_;  // instead, for a fixed-size binary
  bool has_dictionary_ = false;
};

}  // namespace

void CheckDictionaryHeader(const PageHeader& header, bool has_dictionary) {
  if (has_dictionary) throw CorruptFile("column chunk has more than one dictionary");
  if (header.encoding != parquet::Encoding::PLAIN &&
      header.encoding != parquet::Encoding::PLAIN_DICTIONARY) {
    throw CorruptFile("dictionary page is not PLAIN but has encoding number " +
                      std::to_string(header.encoding));
  }
}

template <typename Out>
std::unique_ptr<PageValues<Out>> MakePageValues(
    const parquet::ColumnDescriptor& descriptor, const kernels::Conversion& conversion,
    ColumnBuffers* buffers) {
  return std::make_unique<FixedSizeValues<Out>>(descriptor, conversion, buffers);
}

template std::unique_ptr<PageValues<uint8_t>> MakePageValues(
    const parquet::ColumnDescriptor&, const kernels::Conversion&, ColumnBuffers*);
template std::unique_ptr<PageValues<uint16_t>> MakePageValues(
    const parquet::ColumnDescriptor&, const kernels::Conversion&, ColumnBuffers*);
template std::unique_ptr<PageValues<uint32_t>> MakePageValues(
    const parquet::ColumnDescriptor&, const kernels::Conversion&, ColumnBuffers*);
template std::unique_ptr<PageValues<uint64_t>> MakePageValues(
    const parquet::ColumnDescriptor&, const kernels::Conversion&, ColumnBuffers*);

}  // namespace torchparquet
