#include "kernels/crc32.h"

#include <doctest/doctest.h>

#include <cstdint>
#include <string_view>
#include <vector>

#include "draws.h"
#include "exact_buffer.h"

namespace torchparquet::kernels {
namespace {

using testing::Draws;
using testing::ExactBuffer;

std::span<const uint8_t> Bytes(std::string_view text) {
  return {reinterpret_cast<const uint8_t*>(text.data()), text.size()};
}

// Bit by bit, as the definition has it.
uint32_t SlowCrc32(std::span<const uint8_t> bytes) {
  uint32_t remainder = 0xFFFFFFFF;
  for (const uint8_t byte : bytes) {
    remainder ^= byte;
    for (int bit = 0; bit < 8; ++bit) {
      remainder = (remainder >> 1) ^ ((remainder & 1) != 0 ? 0xEDB88320 : 0);
    }
  }
  return ~remainder;
}

TEST_CASE("known values") {
  CHECK(Crc32({}) == 0);
  CHECK(Crc32(Bytes("123456789")) == 0xCBF43926);
  CHECK(Crc32(std::vector<uint8_t>(1024, 0)) == 0xEFB5AF2E);
}

TEST_CASE("all variants agree with the definition at every size") {
  Draws draws(307);
  for (size_t size = 0; size < 700; ++size) {
    ExactBuffer<uint8_t> bytes(size);
    for (uint8_t& byte : bytes.span()) byte = static_cast<uint8_t>(draws.Bits());
    const uint32_t expected = SlowCrc32(bytes.span());
    CHECK(Crc32(bytes.span()) == expected);
    CHECK(PlainCrc32(bytes.span()) == expected);
    if (size == 0) continue;
    // Wherever one bit differs.
    const auto at = static_cast<size_t>(draws.Below(static_cast<int64_t>(size)));
    bytes.span()[at] ^= static_cast<uint8_t>(1 << draws.Below(8));
    CHECK(Crc32(bytes.span()) != expected);
  }
  for (int trial = 0; trial < 20; ++trial) {
    ExactBuffer<uint8_t> bytes(static_cast<size_t>(draws.Between(700, 100'000)));
    for (uint8_t& byte : bytes.span()) byte = static_cast<uint8_t>(draws.Bits());
    CHECK(Crc32(bytes.span()) == SlowCrc32(bytes.span()));
  }
}

}  // namespace
}  // namespace torchparquet::kernels
