#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>

#include "columns/values/byte_array_values.h"
#include "columns/values/page_values.h"
#include "kernels/byte_sink.h"
#include "kernels/levels/selected.h"
#include "kernels/values/expand.h"
#include "pages/decode_scratch.h"

namespace torchparquet {

// Consecutive values, some of which may be null.
struct ValueRun {
  int64_t size = 0;
  const uint8_t* validity = nullptr;  // a byte per value; null: all are valid
  int64_t num_valid = 0;              // values that the page has
  uint64_t fill_bits = 0;             // the item of a null number
};

// Appends the values of a column chunk's pages to a sink.
class ItemAppender {
 public:
  virtual ~ItemAppender() = default;
  // Leads to the values that Append takes.
  virtual EntryValues& values() = 0;
  // If values are strings, writes to `starts`, for each value of the run, where it begins
  // in the sink. A null writes nothing.
  virtual void Append(const ValueRun& run, DecodeScratch* scratch, int64_t* starts,
                      kernels::ByteSink* sink) = 0;
};

// Out is the bit pattern of an item.
template <typename Out>
class NumberAppender : public ItemAppender {
 public:
  explicit NumberAppender(std::unique_ptr<PageValues<Out>> values)
      : values_(std::move(values)) {}

  EntryValues& values() override { return *values_; }
  void Append(const ValueRun& run, DecodeScratch* scratch, int64_t*,
              kernels::ByteSink* sink) override {
    const int64_t cell_items = values_->cell_items();
    const size_t num_bytes = static_cast<size_t>(run.size * cell_items) * sizeof(Out);
    // The sink holds only items of this type, so all are aligned.
    auto* out = reinterpret_cast<Out*>(sink->Extend(num_bytes));
    if (run.validity == nullptr) return values_->reader().Read(out, run.size);
    Out* dense = scratch->dense.ReserveItems<Out>(run.num_valid * cell_items +
                                                  kernels::kExpandReadableItems<Out>);
    values_->reader().Read(dense, run.num_valid);
    const auto fill = static_cast<Out>(run.fill_bits);
    if (cell_items > 1) {
      kernels::ExpandCells(dense, run.validity, run.size, cell_items, fill, out);
    } else {
      expand_(dense, run.validity, run.size, fill, out);
    }
  }

 private:
  const std::unique_ptr<PageValues<Out>> values_;
  const kernels::ExpandFunction<Out> expand_ =
      kernels::ChooseExpand<Out>(kernels::Stores::kCached);
};

// Strings and other bytes; a null is empty.
class BytesAppender : public ItemAppender, public EntryValues {
 public:
  explicit BytesAppender(ColumnBuffers* buffers) : values_(buffers) {}

  EntryValues& values() override { return *this; }
  void ReadDictionary(const PageHeader& header, std::span<const uint8_t> bytes) override {
    values_.ReadDictionary(header, bytes);
  }
  void Open(const PageHeader& header, const ValueBytes& values) override {
    page_ = values_.Open(header, values);
  }

  void Append(const ValueRun& run, DecodeScratch* scratch, int64_t* starts,
              kernels::ByteSink* sink) override;
  void Skip(int64_t num_valid) override { page_->Skip(num_valid); }
  void Select(std::span<const kernels::BitWord> bits, int64_t num_values) override {
    selected_ = {bits, num_values, 0};
  }
  void EndSelected() override;

 private:
  struct Selected {
    std::span<const kernels::BitWord> bits = {};
    int64_t num_values = 0;
    int64_t position = 0;
  };
  void Read(int64_t num_values, uint32_t* lengths, kernels::ByteSink* sink);

  ByteArrayValues values_;
  std::unique_ptr<kernels::ByteArrayReader> page_;
  std::optional<Selected> selected_;
};

}  // namespace torchparquet
