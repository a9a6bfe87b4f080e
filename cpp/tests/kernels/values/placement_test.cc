#include <doctest/doctest.h>

#include <algorithm>
#include <vector>

#include "draws.h"
#include "exact_buffer.h"
#include "kernels/values/expand.h"

namespace torchparquet::kernels {
namespace {

using testing::Draws;
using testing::ExactBuffer;

TEST_CASE_TEMPLATE("strided writes touch their column only", T, uint8_t, uint16_t,
                   uint32_t, uint64_t) {
  Draws draws(4);
  for (const int64_t stride : {1, 2, 3, 17}) {
    for (const int64_t num_rows : {0, 1, 5, 64}) {
      const auto size =
          static_cast<size_t>(std::max<int64_t>((num_rows - 1) * stride + 1, 0));
      std::vector<T> scattered(size, T{99});
      std::vector<T> filled(size, T{99});
      std::vector<T> values;
      for (int64_t row = 0; row < num_rows; ++row) {
        values.push_back(static_cast<T>(draws.Bits()));
        scattered[static_cast<size_t>(row * stride)] = values.back();
        filled[static_cast<size_t>(row * stride)] = T{7};
      }
      ExactBuffer<T> in(values);
      ExactBuffer<T> out(std::vector<T>(size, T{99}));
      ScatterStrided(in.data(), num_rows, stride, out.data());
      CHECK(out.Copy() == scattered);
      std::fill_n(out.data(), size, T{99});
      FillStrided(T{7}, num_rows, stride, out.data());
      CHECK(out.Copy() == filled);
    }
  }
}

}  // namespace
}  // namespace torchparquet::kernels
