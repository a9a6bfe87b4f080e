#include "kernels/values/select.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <vector>

#include "draws.h"
#include "exact_buffer.h"

namespace torchparquet::kernels {
namespace {

using testing::Draws;
using testing::ExactBuffer;

TEST_CASE_TEMPLATE("selected items are copied in order", T, uint8_t, uint16_t, uint32_t,
                   uint64_t) {
  Draws draws(3);
  for (int trial = 0; trial < 400; ++trial) {
    const auto num_items = static_cast<size_t>(draws.Between(1, 300));
    const int64_t longest = draws.OneIn(2) ? 3 : 100;
    const bool is_sparse = draws.OneIn(3);
    std::vector<uint64_t> words((num_items + 63) / 64);
    std::vector<T> all;
    std::vector<T> expected;
    while (all.size() < num_items) {
      const bool bit = is_sparse ? draws.OneIn(20) : draws.OneIn(2);
      for (int64_t i = draws.Between(1, longest); i > 0 && all.size() < num_items; --i) {
        words[all.size() / 64] |= uint64_t{bit} << (all.size() % 64);
        all.push_back(static_cast<T>(draws.Between(0, 1 << 30) * 0x100000001));
        if (bit) expected.push_back(all.back());
      }
    }
    const auto slack = static_cast<size_t>(kSelectSlackItems<T>);
    all.resize(num_items + slack);
    ExactBuffer<T> items(all);
    ExactBuffer<uint64_t> bits(words);
    for (const SelectFunction<T> select : {ChooseSelect<T>(), &PlainSelect<T>}) {
      ExactBuffer<T> out(expected.size() + slack);
      CHECK(select(items.data(), bits.data(), static_cast<int64_t>(num_items),
                   out.data()) == std::ssize(expected));
      CHECK(std::equal(expected.begin(), expected.end(), out.data()));
    }
  }
}

}  // namespace
}  // namespace torchparquet::kernels
