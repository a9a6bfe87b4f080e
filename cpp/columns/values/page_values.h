#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>

#include "bridge/format.h"
#include "columns/values/selected_reader.h"
#include "columns/values/value_reader.h"
#include "kernels/levels/selected.h"
#include "kernels/values/conversion.h"
#include "pages/decode_scratch.h"
#include "pages/page_header.h"
#include "pages/page_parts.h"

namespace torchparquet {

// The values of a column chunk's pages, for who walks over the entries of pages. All
// functions throw Error(kCorruptFile) for impossible input.
class EntryValues {
 public:
  virtual ~EntryValues() = default;
  // `bytes` are used within the call only.
  virtual void ReadDictionary(const PageHeader& header,
                              std::span<const uint8_t> bytes) = 0;
  // Begins a page. `values` must stay valid.
  virtual void Open(const PageHeader& header, const ValueBytes& values) = 0;
  virtual void Skip(int64_t num_values) = 0;
  // Until EndSelected or the next page, the page's values are those whose bit is set, of
  // the next `num_values`. EndSelected passes over what is left of these.
  virtual void Select(std::span<const kernels::BitWord> bits, int64_t num_values) = 0;
  virtual void EndSelected() = 0;
};

// Values of `cell_items` items each, as bit patterns of the output type.
template <typename Out>
class PageValues : public EntryValues {
 public:
  void Open(const PageHeader& header, const ValueBytes& values) final {
    selected_.reset();
    all_ = OpenPage(header, values);
  }
  void Skip(int64_t num_values) final { reader().Skip(num_values); }
  void Select(std::span<const kernels::BitWord> bits, int64_t num_values) final {
    selected_.emplace(all_.get(), bits, num_values, cell_items_);
  }
  void EndSelected() final {
    selected_->SkipRest();
    selected_.reset();
  }
  // Of the open page.
  ValueReader<Out>& reader() { return selected_ ? *selected_ : *all_; }
  int64_t cell_items() const { return cell_items_; }
  // Opens a page by the class for its encoding. `values` and this must outlive the
  // reader.
  virtual std::unique_ptr<ValueReader<Out>> OpenPage(const PageHeader& header,
                                                     const ValueBytes& values) = 0;

 protected:
  explicit PageValues(int64_t cell_items) : cell_items_(cell_items) {}

 private:
  const int64_t cell_items_;
  std::unique_ptr<ValueReader<Out>> all_;
  std::optional<SelectedReader<Out>> selected_;
};

// Throws Error(kCorruptFile) for a second dictionary of the column chunk, or for an
// encoding that dictionaries cannot have.
void CheckDictionaryHeader(const PageHeader& header, bool has_dictionary);

// Values stored in one size. `Out` is the bit pattern that `conversion` leads to:
// uint8_t, uint16_t, uint32_t or uint64_t. `buffers` must outlive the values.
template <typename Out>
std::unique_ptr<PageValues<Out>> MakePageValues(PhysicalType physical,
                                                const kernels::Conversion& conversion,
                                                int64_t cell_items,
                                                ColumnBuffers* buffers);

}  // namespace torchparquet
