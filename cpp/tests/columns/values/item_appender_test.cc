#include "columns/values/item_appender.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <cstring>
#include <string>
#include <utility>
#include <vector>

#include "draws.h"
#include "encoders/arrow_encodings.h"
#include "encoders/byte_array_steps.h"
#include "encoders/page_headers.h"
#include "exact_buffer.h"

namespace torchparquet {
namespace {

using testing::Draws;
using testing::ExactBuffer;

// Cells that count up.
template <typename Out>
class CountingReader : public ValueReader<Out> {
 public:
  explicit CountingReader(int64_t cell_items) : cell_items_(cell_items) {}
  void Read(Out* out, int64_t num_values) override {
    for (int64_t i = 0; i < num_values * cell_items_; ++i) *out++ = next_++;
  }
  void Skip(int64_t num_values) override {
    next_ = static_cast<Out>(next_ + static_cast<Out>(num_values * cell_items_));
  }

 private:
  const int64_t cell_items_;
  Out next_ = 0;
};

template <typename Out>
class CountingValues : public PageValues<Out> {
 public:
  explicit CountingValues(int64_t cell_items) : PageValues<Out>(cell_items) {}
  void ReadDictionary(const PageHeader&, std::span<const uint8_t>) override {}
  std::unique_ptr<ValueReader<Out>> OpenPage(const PageHeader&,
                                             const ValueBytes&) override {
    return std::make_unique<CountingReader<Out>>(this->cell_items());
  }
};

struct Validity {
  std::vector<uint8_t> bytes;
  int64_t num_valid = 0;
};

Validity RandomValidity(Draws& draws, int64_t size) {
  Validity validity;
  const int64_t one_in = draws.Between(1, 6);
  for (int64_t i = 0; i < size; ++i) {
    validity.bytes.push_back(!draws.OneIn(one_in));
    validity.num_valid += validity.bytes.back();
  }
  return validity;
}

template <typename Out>
std::vector<Out> ItemsOf(const kernels::ByteSink& sink) {
  std::vector<Out> items(sink.size() / sizeof(Out));
  if (!items.empty()) std::memcpy(items.data(), sink.bytes().data(), sink.size());
  return items;
}

TEST_CASE_TEMPLATE("runs of numbers, with nulls and without", Out, uint8_t, uint16_t,
                   uint32_t, uint64_t) {
  Draws draws(260);
  for (const int64_t cell_items : {1, 3}) {
    for (int trial = 0; trial < 60; ++trial) {
      NumberAppender<Out> appender(std::make_unique<CountingValues<Out>>(cell_items));
      appender.values().Open({}, {});
      DecodeScratch scratch;
      kernels::ByteSink sink;
      std::vector<Out> expected;
      Out next = 0;
      for (int run_number = 0; run_number < 8; ++run_number) {
        const int64_t size = draws.OneIn(3) ? draws.Below(2048) : draws.Between(1, 9);
        if (draws.OneIn(3)) {
          appender.values().Skip(size);
          next = static_cast<Out>(next + static_cast<Out>(size * cell_items));
          continue;
        }
        const bool has_nulls = draws.OneIn(2);
        const Validity validity = RandomValidity(draws, size);
        ExactBuffer<uint8_t> exact(validity.bytes);
        const ValueRun run{.size = size,
                           .validity = has_nulls ? exact.data() : nullptr,
                           .num_valid = has_nulls ? validity.num_valid : size,
                           .fill_bits = 0x5555555555555555};
        appender.Append(run, &scratch, nullptr, &sink);
        for (int64_t i = 0; i < size; ++i) {
          const bool valid = !has_nulls || validity.bytes[static_cast<size_t>(i)] == 1;
          for (int64_t j = 0; j < cell_items; ++j) {
            expected.push_back(valid ? next++ : static_cast<Out>(0x5555555555555555));
          }
        }
      }
      CHECK(ItemsOf<Out>(sink) == expected);
    }
  }
}

TEST_CASE("runs of strings, with nulls and without, and where each begins") {
  Draws draws(261);
  ColumnBuffers buffers;
  for (const int64_t size : {1, 40, 5000}) {
    for (const auto& strings : testing::StringShapes(draws, size)) {
      ExactBuffer<uint8_t> page(
          testing::ArrowEncode(testing::ArrowEncoding::kPlain, strings));
      BytesAppender appender(&buffers);
      appender.Open(testing::DataPage(testing::kPlain, size), page.span());
      DecodeScratch scratch;
      kernels::ByteSink sink;
      sink.Extend(3);
      std::string expected(sink.bytes().begin(), sink.bytes().end());
      auto next = strings.begin();
      while (next != strings.end()) {
        const int64_t left = strings.end() - next;
        if (draws.OneIn(4)) {
          const int64_t count = draws.Between(0, std::min<int64_t>(left, 30));
          appender.Skip(count);
          next += count;
          continue;
        }
        const bool has_nulls = draws.OneIn(2);
        int64_t size_of_run = draws.OneIn(2) ? draws.Below(5000) : draws.Between(1, 9);
        if (!has_nulls) size_of_run = std::min(size_of_run, left);
        Validity validity{.bytes =
                              std::vector<uint8_t>(static_cast<size_t>(size_of_run))};
        for (uint8_t& valid : validity.bytes) {
          valid = validity.num_valid < left && (!has_nulls || !draws.OneIn(3));
          validity.num_valid += valid;
        }
        ExactBuffer<int64_t> starts(validity.bytes.size());
        appender.Append({.size = std::ssize(validity.bytes),
                         .validity = has_nulls ? validity.bytes.data() : nullptr,
                         .num_valid = validity.num_valid},
                        &scratch, starts.data(), &sink);
        std::vector<int64_t> expected_starts;
        for (const uint8_t valid : validity.bytes) {
          expected_starts.push_back(std::ssize(expected));
          if (valid == 1) expected += *next++;
        }
        CHECK(starts.Copy() == expected_starts);
      }
      CHECK(std::string(sink.bytes().begin(), sink.bytes().end()) == expected);
    }
  }
}

}  // namespace
}  // namespace torchparquet
