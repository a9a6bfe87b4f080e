#include "columns/values/fixed_bytes_dictionary.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <cstring>
#include <vector>

#include "draws.h"
#include "encoders/rle_bit_packed_encoder.h"
#include "exact_buffer.h"
#include "kernels/streaming_stores.h"

namespace torchparquet {
namespace {

using testing::Draws;
using testing::ExactBuffer;
using testing::RleBitPackedEncoder;

constexpr int kIndexWidth = 7;

// The bit-width byte and the runs.
std::vector<uint8_t> PageOf(const RleBitPackedEncoder& encoder) {
  std::vector<uint8_t> page = {kIndexWidth};
  page.insert(page.end(), encoder.bytes().begin(), encoder.bytes().end());
  return page;
}

std::vector<uint8_t> Look(const std::vector<uint8_t>& values, size_t value_bytes,
                          const std::vector<uint32_t>& indices) {
  std::vector<uint8_t> found;
  for (const uint32_t index : indices) {
    const uint8_t* value = values.data() + index * value_bytes;
    found.insert(found.end(), value, value + value_bytes);
  }
  return found;
}

TEST_CASE("values of every size, to places of just that many bytes") {
  Draws draws(51);
  for (const int64_t value_bytes :
       {1, 2, 3, 4, 7, 8, 12, 15, 16, 17, 20, 31, 32, 33, 100, 5000, 8192, 8193}) {
    CAPTURE(value_bytes);
    const int64_t num_entries = draws.Between(1, 90);
    const auto values = testing::RandomBytes(draws, num_entries * value_bytes);
    ScratchBuffer bytes, indices;
    FixedBytesDictionary dictionary(&bytes, &indices);
    // Earlier content leaves no trace.
    dictionary.Assign(values.data(), 1, value_bytes);
    dictionary.Assign(values.data(), num_entries, value_bytes);
    RleBitPackedEncoder encoder(kIndexWidth);
    encoder.AppendRandom(draws, value_bytes < 1000 ? 3000 : 40, num_entries);
    const std::vector<uint8_t> page = PageOf(encoder);
    const auto expected =
        Look(values, static_cast<size_t>(value_bytes), encoder.values());

    FixedBytesDictionaryReader reader(page, &dictionary);
    const auto num_values = std::ssize(encoder.values());
    const int64_t max_count = value_bytes < 1000 ? 1500 : 5;
    for (int64_t position = 0; position < num_values;) {
      const int64_t count = std::min(draws.Below(max_count), num_values - position);
      ExactBuffer<uint8_t> out(static_cast<size_t>(count * value_bytes));
      switch (draws.Below(3)) {
        case 0:
          reader.Skip(count);
          break;
        case 1:
          reader.Read(out.data(), count);
          CHECK(std::equal(out.data(), out.data() + out.size(),
                           expected.data() + position * value_bytes));
          break;
        default:
          reader.ReadStreaming(out.data(), count);
          kernels::EndStreamingStores();
          CHECK(std::equal(out.data(), out.data() + out.size(),
                           expected.data() + position * value_bytes));
      }
      position += count;
    }
  }
}

}  // namespace
}  // namespace torchparquet
