#include "columns/values/vocabulary.h"

#include <algorithm>
#include <array>
#include <utility>

#include "base/errors.h"
#include "bridge/format.h"
#include "columns/values/byte_array_values.h"
#include "kernels/item_types.h"

namespace torchparquet {
namespace {

// Looks strings up while they are decoded.
template <typename Out>
class CodeReader : public ValueReader<Out> {
 public:
  CodeReader(std::unique_ptr<kernels::ByteArrayReader> strings,
             const Vocabulary* vocabulary, int64_t max_bytes)
      : strings_(std::move(strings)), vocabulary_(vocabulary) {
    block_.set_max_bytes(static_cast<size_t>(max_bytes));
  }

  void Read(Out* out, int64_t num_values) override {
    std::array<uint32_t, kernels::kByteArrayBlock> lengths;
    while (num_values > 0) {
      const int64_t count = std::min(num_values, kernels::kByteArrayBlock);
      ReadBlock(count, lengths.data());
      // Bytes are read as characters.
      const auto* word = reinterpret_cast<const char*>(block_.bytes().data());
      for (int64_t i = 0; i < count; ++i) {
        const size_t length = lengths[static_cast<size_t>(i)];
        out[i] = static_cast<Out>(vocabulary_->CodeOf({word, length}));
        word += length;
      }
      out += count;
      num_values -= count;
    }
  }
  void Skip(int64_t num_values) override { strings_->Skip(num_values); }

 private:
  void ReadBlock(int64_t count, uint32_t* lengths) {
    block_.Clear();
    try {
      strings_->Read(count, lengths, &block_);
    } catch (const Error& error) {
      // These strings are part of a page, and no values that anybody gets.
      if (error.kind() != ErrorKind::kValuesTooLarge) throw;
      throw Error(ErrorKind::kOutOfMemory, error.what());
    }
  }

  const std::unique_ptr<kernels::ByteArrayReader> strings_;
  const Vocabulary* vocabulary_;
  kernels::ByteSink block_;
};

template <typename Out>
class CodeValues : public PageValues<Out> {
 public:
  CodeValues(std::shared_ptr<const Vocabulary> vocabulary, int64_t max_bytes,
             ColumnBuffers* buffers)
      : PageValues<Out>(/*cell_items=*/1),
        vocabulary_(std::move(vocabulary)),
        max_bytes_(max_bytes),
        strings_(buffers),
        codes_(&buffers->codes) {}

  void ReadDictionary(const PageHeader& header, std::span<const uint8_t> bytes) override {
    strings_.ReadDictionary(header, bytes);
    codes_.Resize(header.num_values);
    for (int64_t i = 0; i < header.num_values; ++i) {
      codes_.values()[static_cast<size_t>(i)] =
          static_cast<Out>(vocabulary_->CodeOf(strings_.dictionary().value(i)));
    }
  }

  std::unique_ptr<ValueReader<Out>> OpenPage(const PageHeader& header,
                                             const ValueBytes& values) override {
    const bool has_indices = header.encoding == Encoding::kRleDictionary ||
                             header.encoding == Encoding::kPlainDictionary;
    if (has_indices && !values.bytes().empty()) {
      return std::make_unique<DictionaryValueReader<Out>>(values.bytes(), &codes_);
    }
    return std::make_unique<CodeReader<Out>>(strings_.Open(header, values),
                                             vocabulary_.get(), max_bytes_);
  }

 private:
  const std::shared_ptr<const Vocabulary> vocabulary_;
  const int64_t max_bytes_;
  ByteArrayValues strings_;
  kernels::Dictionary<Out> codes_;
};

}  // namespace

Vocabulary::Vocabulary(std::vector<std::string> words, int64_t unknown_code)
    : words_(std::move(words)), unknown_code_(unknown_code) {
  codes_.reserve(words_.size());
  for (size_t i = 0; i < words_.size(); ++i) {
    if (!codes_.emplace(words_[i], static_cast<int64_t>(i)).second) {
      throw InvalidArgument("a vocabulary must not repeat a word: ",
                            Printable(words_[i]));
    }
  }
}

template <typename Out>
std::unique_ptr<PageValues<Out>> MakeCodeValues(
    std::shared_ptr<const Vocabulary> vocabulary, int64_t max_bytes,
    ColumnBuffers* buffers) {
  return std::make_unique<CodeValues<Out>>(std::move(vocabulary), max_bytes, buffers);
}

#define TORCHPARQUET_INSTANTIATE(Out)                       \
  template std::unique_ptr<PageValues<Out>> MakeCodeValues( \
      std::shared_ptr<const Vocabulary>, int64_t, ColumnBuffers*);
TORCHPARQUET_FOR_ITEM_TYPES(TORCHPARQUET_INSTANTIATE)
#undef TORCHPARQUET_INSTANTIATE

}  // namespace torchparquet
