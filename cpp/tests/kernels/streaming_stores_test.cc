#include "kernels/streaming_stores.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <vector>

#include "draws.h"
#include "exact_buffer.h"

namespace torchparquet::kernels {
namespace {

using testing::Draws;
using testing::ExactBuffer;

// An exact buffer with room for `size` bytes that begin `shift` bytes after its start.
ExactBuffer<uint8_t> Shifted(int64_t size, int64_t shift) {
  ExactBuffer<uint8_t> buffer(static_cast<size_t>(size + shift));
  std::ranges::fill(buffer.span(), uint8_t{0xEE});
  return buffer;
}

TEST_CASE("a streaming copy is a copy, wherever it begins and ends") {
  Draws draws(31);
  for (const int64_t size : {0, 1, 15, 16, 63, 64, 65, 127, 128, 1000}) {
    const std::vector<uint8_t> content = testing::RandomBytes(draws, size);
    for (int64_t shift = 0; shift < 2 * kLineBytes; ++shift) {
      CAPTURE(size);
      CAPTURE(shift);
      ExactBuffer<uint8_t> in = Shifted(size, shift % 7);
      std::ranges::copy(content, in.data() + shift % 7);
      ExactBuffer<uint8_t> out = Shifted(size, shift);
      StreamCopy(in.data() + shift % 7, size, out.data() + shift);
      EndStreamingStores();
      CHECK(std::equal(content.begin(), content.end(), out.data() + shift));
      CHECK(std::all_of(out.data(), out.data() + shift,
                        [](uint8_t byte) { return byte == 0xEE; }));
    }
  }
}

}  // namespace
}  // namespace torchparquet::kernels
