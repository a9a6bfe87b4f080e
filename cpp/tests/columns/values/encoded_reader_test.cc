#include "columns/values/encoded_reader.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <vector>

#include "draws.h"
#include "exact_buffer.h"
#include "kernels/streaming_stores.h"

namespace torchparquet {
namespace {

using testing::Draws;
using testing::ExactBuffer;

TEST_CASE("split streams are the same by streaming stores") {
  Draws draws(52);
  for (const int64_t value_bytes : {1, 2, 3, 4, 8, 16, 33, 8192, 8193}) {
    CAPTURE(value_bytes);
    const int64_t num_values = value_bytes < 1000 ? 5000 : 20;
    const auto page = testing::RandomBytes(draws, num_values * value_bytes);
    const auto open = [&] {
      return OpenNumberReader(PhysicalType::kFixedBytes, Encoding::kByteStreamSplit, page,
                              value_bytes);
    };
    const auto plain = open();
    ExactBuffer<uint8_t> expected(page.size());
    plain->Read(expected.data(), num_values);

    const auto reader = open();
    const int64_t max_count = value_bytes < 1000 ? 1500 : 5;
    for (int64_t position = 0; position < num_values;) {
      const int64_t count = std::min(draws.Below(max_count), num_values - position);
      const int64_t shift = draws.Below(64);
      ExactBuffer<uint8_t> out(static_cast<size_t>(count * value_bytes + shift));
      uint8_t* begin = out.data() + shift;
      reader->ReadStreaming(begin, count);
      kernels::EndStreamingStores();
      CHECK(std::equal(begin, begin + count * value_bytes,
                       expected.data() + position * value_bytes));
      position += count;
    }
  }
}

}  // namespace
}  // namespace torchparquet
