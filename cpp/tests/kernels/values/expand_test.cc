#include "kernels/values/expand.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <cstring>
#include <vector>

#include "draws.h"
#include "exact_buffer.h"

namespace torchparquet::kernels {
namespace {

using testing::Draws;
using testing::ExactBuffer;

// Writes after some items of a block that is aligned to a line.
template <typename T>
std::vector<T> Expanded(ExpandFunction<T> expand, const std::vector<T>& dense,
                        const std::vector<uint8_t>& validity, T fill, size_t begin) {
  std::vector<T> readable = dense;
  readable.resize(dense.size() + kExpandReadableItems<T>);
  ExactBuffer<T> dense_buffer(readable);
  ExactBuffer<uint8_t> validity_buffer(validity);
  const size_t size = begin + validity.size();
  std::vector<T> memory(size + kLineBytes / sizeof(T) + 1, T{99});
  const auto address = reinterpret_cast<uintptr_t>(memory.data());
  const size_t shift = (kLineBytes - address % kLineBytes) % kLineBytes / sizeof(T);
  T* out = memory.data() + shift + begin;
  expand(dense_buffer.data(), validity_buffer.data(),
         static_cast<int64_t>(validity.size()), fill, out);
  EndStreamingStores();
  CHECK(std::all_of(memory.data(), out, [](T item) { return item == T{99}; }));
  CHECK(std::all_of(out + validity.size(), memory.data() + memory.size(),
                    [](T item) { return item == T{99}; }));
  return {out, out + validity.size()};
}

TEST_CASE_TEMPLATE("dense values are spread over the valid rows", T, uint8_t, uint16_t,
                   uint32_t, uint64_t) {
  Draws draws(3);
  for (const int64_t num_rows : {0, 1, 2, 7, 8, 9, 31, 100, 777}) {
    for (const int64_t null_in : {1, 2, 5, 1'000'000'000}) {
      for (const size_t begin : {0, 1, 2, 3, 5, 8}) {
        const T fill = static_cast<T>(draws.Bits());
        std::vector<uint8_t> validity;
        std::vector<T> dense;
        std::vector<T> expected;
        for (int64_t row = 0; row < num_rows; ++row) {
          const bool valid = !draws.OneIn(null_in);
          validity.push_back(valid);
          if (valid) dense.push_back(static_cast<T>(draws.Bits()));
          expected.push_back(valid ? dense.back() : fill);
        }
        const auto expanded = [&](ExpandFunction<T> expand) {
          return Expanded(expand, dense, validity, fill, begin);
        };
        CHECK(expanded(PlainExpand<T>) == expected);
        CHECK(expanded(ChooseExpand<T>(Stores::kCached)) == expected);
        CHECK(expanded(ChooseExpand<T>(Stores::kStreaming)) == expected);
      }
    }
  }
}

TEST_CASE_TEMPLATE("every mask of eight rows", T, uint32_t, uint64_t) {
  Draws draws(4);
  for (unsigned mask = 0; mask < 256; ++mask) {
    std::vector<uint8_t> validity(8);
    std::vector<T> dense;
    std::vector<T> expected;
    for (size_t row = 0; row < validity.size(); ++row) {
      validity[row] = (mask >> row) & 1;
      if (validity[row]) dense.push_back(static_cast<T>(draws.Bits()));
      expected.push_back(validity[row] ? dense.back() : T{7});
    }
    for (const Stores stores : {Stores::kCached, Stores::kStreaming}) {
      CHECK(Expanded(ChooseExpand<T>(stores), dense, validity, T{7}, 0) == expected);
    }
  }
}

TEST_CASE_TEMPLATE("cells are spread as a whole", T, uint8_t, uint32_t) {
  const std::vector<T> dense{1, 2, 3, 4};
  const std::vector<uint8_t> validity{0, 1, 0, 0, 1};
  std::vector<T> out(10);
  ExpandCells<T>(dense.data(), validity.data(), 5, 2, T{9}, out.data());
  CHECK(out == std::vector<T>{9, 9, 1, 2, 9, 9, 9, 9, 3, 4});
}

}  // namespace
}  // namespace torchparquet::kernels
