#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <utility>

#include "columns/values/page_values.h"
#include "columns/values/selected_reader.h"
#include "kernels/levels/selected.h"

namespace torchparquet {

// The values of a column chunk's pages, for who walks over the entries of pages.
class EntryValues {
 public:
  virtual ~EntryValues() = default;
  // As in PageValues.
  virtual void ReadDictionary(const PageHeader& header,
                              std::span<const uint8_t> bytes) = 0;
  // Begins a page.
  virtual void Open(const PageHeader& header, const ValueBytes& values) = 0;
  virtual void Skip(int64_t num_values) = 0;
  // Until EndSelected or the next page, the page's values are those whose bit is set, of
  // the next `num_values`. EndSelected passes over what is left of these.
  virtual void Select(std::span<const kernels::BitWord> bits, int64_t num_values) = 0;
  virtual void EndSelected() = 0;
};

// Values of `cell_items` items each. Out is the bit pattern of an item.
template <typename Out>
class LeafValues final : public EntryValues {
 public:
  LeafValues(std::unique_ptr<PageValues<Out>> pages, int64_t cell_items)
      : pages_(std::move(pages)), cell_items_(cell_items) {}

  void ReadDictionary(const PageHeader& header, std::span<const uint8_t> bytes) override {
    pages_->ReadDictionary(header, bytes);
  }
  void Open(const PageHeader& header, const ValueBytes& values) override {
    selected_.reset();
    all_ = pages_->Open(header, values);
  }
  void Skip(int64_t num_values) override { reader().Skip(num_values); }
  void Select(std::span<const kernels::BitWord> bits, int64_t num_values) override {
    selected_.emplace(all_.get(), bits, num_values, cell_items_);
  }
  void EndSelected() override {
    selected_->SkipRest();
    selected_.reset();
  }

  // Of the open page.
  ValueReader<Out>& reader() { return selected_ ? *selected_ : *all_; }
  int64_t cell_items() const { return cell_items_; }

 private:
  const std::unique_ptr<PageValues<Out>> pages_;
  const int64_t cell_items_;
  std::unique_ptr<ValueReader<Out>> all_;
  std::optional<SelectedReader<Out>> selected_;
};

}  // namespace torchparquet
