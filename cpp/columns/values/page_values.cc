#include "columns/values/page_values.h"

#include <string>
#include <type_traits>
#include <utility>

#include "base/errors.h"
#include "columns/values/encoded_reader.h"
#include "columns/values/file_values.h"
#include "columns/values/fixed_bytes_dictionary.h"
#include "kernels/item_types.h"

namespace torchparquet {
namespace {

template <typename Out>
class FixedSizeValues : public PageValues<Out> {
 public:
  FixedSizeValues(PhysicalType physical, const kernels::Conversion& conversion,
                  int64_t cell_items, ColumnBuffers* buffers)
      : PageValues<Out>(cell_items),
        physical_(physical),
        conversion_(conversion),
        dictionary_(&buffers->dictionary),
        fixed_bytes_dictionary_(&buffers->dictionary, &buffers->indices) {}

  void ReadDictionary(const PageHeader& header, std::span<const uint8_t> bytes) override {
    if (physical_ == PhysicalType::kBoolean) {
      throw CorruptFile("a boolean column cannot have a dictionary");
    }
    CheckDictionaryHeader(header, has_dictionary_);
    has_dictionary_ = true;
    // Values of different lengths have at least four bytes each.
    const int64_t min_bytes = is_binary() ? 4 : conversion_.stored_bytes();
    if (header.num_values * min_bytes > static_cast<int64_t>(bytes.size())) {
      throw CorruptFile("dictionary page is too short for its ", header.num_values,
                        " values");
    }
    if (is_cell()) {
      fixed_bytes_dictionary_.Assign(bytes.data(), header.num_values,
                                     conversion_.stored_bytes());
      return;
    }
    dictionary_.Resize(header.num_values);
    try {
      OpenPlain(bytes, header.num_values)
          ->Read(dictionary_.values().data(), header.num_values);
    } catch (const Error& error) {
      if (error.kind() != ErrorKind::kCast) throw;
      if (is_binary()) throw error.WithValue(-1);
      // Its row may be passed over. If not, it is refused when it is read.
      is_refused_ = true;
      fixed_bytes_dictionary_.Assign(bytes.data(), header.num_values,
                                     conversion_.stored_bytes());
    }
  }

  // A page of nulls may have no bytes, not even the header of an encoding.
  std::unique_ptr<ValueReader<Out>> OpenPage(const PageHeader& header,
                                             const ValueBytes& values) override {
    const int encoding = header.encoding;
    if (values.file() != nullptr) {
      return std::make_unique<FilePlainReader<Out>>(values, conversion_);
    }
    const std::span<const uint8_t> bytes = values.bytes();
    if (bytes.empty()) return std::make_unique<PlainReader<Out>>(bytes, conversion_);
    if (encoding == Encoding::kPlain) return OpenPlain(bytes, header.num_values);
    // Without a dictionary page the dictionary is empty: reading any index throws, and a
    // page of nulls has none.
    if (encoding == Encoding::kRleDictionary || encoding == Encoding::kPlainDictionary) {
      if constexpr (std::is_same_v<Out, uint8_t>) {
        if (is_cell()) {
          return std::make_unique<FixedBytesDictionaryReader>(bytes,
                                                              &fixed_bytes_dictionary_);
        }
      }
      if (is_refused_) {
        return std::make_unique<ConvertingReader<Out>>(
            std::make_unique<FixedBytesDictionaryReader>(bytes, &fixed_bytes_dictionary_),
            conversion_);
      }
      return std::make_unique<DictionaryValueReader<Out>>(bytes, &dictionary_);
    }
    if (auto numbers =
            OpenNumberReader(physical_, encoding, bytes, conversion_.stored_bytes())) {
      return std::make_unique<ConvertingReader<Out>>(std::move(numbers), conversion_);
    }
    return OpenLengthened(bytes, header.num_values, encoding);
  }

 private:
  std::unique_ptr<ValueReader<Out>> OpenPlain(std::span<const uint8_t> bytes,
                                              int64_t num_values) const {
    if (physical_ == PhysicalType::kBoolean) {
      return std::make_unique<ConvertingReader<Out>>(
          std::make_unique<PlainBoolReader>(bytes), conversion_);
    }
    if (is_binary()) return OpenLengthened(bytes, num_values, Encoding::kPlain);
    return std::make_unique<PlainReader<Out>>(bytes, conversion_);
  }

  // Values that each have their length in front. No other encoding is left.
  std::unique_ptr<ValueReader<Out>> OpenLengthened(std::span<const uint8_t> bytes,
                                                   int64_t num_values,
                                                   int encoding) const {
    if (!is_binary() && physical_ != PhysicalType::kFixedBytes) {
      throw CorruptFile("values of the column's type cannot have encoding number ",
                        encoding);
    }
    auto values = OpenByteArrayReader(encoding, bytes, num_values);
    return std::make_unique<ConvertingReader<Out>>(
        is_binary() ? OpenDecimals(std::move(values))
                    : OpenFixedBytes(std::move(values), conversion_.stored_bytes()),
        conversion_);
  }

  // True if a value is several items.
  bool is_cell() const { return conversion_.is_cell(); }
  // True if stored values differ in length.
  bool is_binary() const { return physical_ == PhysicalType::kByteArray; }

  const PhysicalType physical_;
  const kernels::Conversion conversion_;
  kernels::Dictionary<Out> dictionary_;
  // Instead, for a binary of a fixed size, or if a value cannot be converted.
  FixedBytesDictionary fixed_bytes_dictionary_;
  bool has_dictionary_ = false;
  bool is_refused_ = false;
};

}  // namespace

void CheckDictionaryHeader(const PageHeader& header, bool has_dictionary) {
  if (has_dictionary) throw CorruptFile("column chunk has more than one dictionary");
  if (header.encoding != Encoding::kPlain &&
      header.encoding != Encoding::kPlainDictionary) {
    throw CorruptFile("dictionary page is not PLAIN but has encoding number ",
                      header.encoding);
  }
}

template <typename Out>
std::unique_ptr<PageValues<Out>> MakePageValues(PhysicalType physical,
                                                const kernels::Conversion& conversion,
                                                int64_t cell_items,
                                                ColumnBuffers* buffers) {
  return std::make_unique<FixedSizeValues<Out>>(physical, conversion, cell_items,
                                                buffers);
}

#define TORCHPARQUET_INSTANTIATE(Out)                       \
  template std::unique_ptr<PageValues<Out>> MakePageValues( \
      PhysicalType, const kernels::Conversion&, int64_t, ColumnBuffers*);
TORCHPARQUET_FOR_ITEM_TYPES(TORCHPARQUET_INSTANTIATE)
#undef TORCHPARQUET_INSTANTIATE

}  // namespace torchparquet
