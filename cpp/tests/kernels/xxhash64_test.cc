#include "kernels/xxhash64.h"

#include <doctest/doctest.h>
#include <parquet/xxhasher.h>

#include <cstdint>
#include <string_view>
#include <vector>

#include "draws.h"
#include "exact_buffer.h"

namespace torchparquet::kernels {
namespace {

using testing::Draws;
using testing::ExactBuffer;

TEST_CASE("hashes of every short length and of some long ones are those of Arrow") {
  Draws draws(1);
  for (int64_t i = 0; i < 400; ++i) {
    const int64_t num_bytes = i < 300 ? i : draws.Between(300, 100'000);
    std::vector<uint8_t> bytes(static_cast<size_t>(num_bytes));
    for (uint8_t& byte : bytes) byte = static_cast<uint8_t>(draws.Between(0, 255));
    const std::string_view text(reinterpret_cast<const char*>(bytes.data()),
                                bytes.size());
    ExactBuffer<uint8_t> exact(bytes);
    CHECK(XxHash64(exact.span()) == parquet::XxHasher().Hash(text));
  }
}

}  // namespace
}  // namespace torchparquet::kernels
