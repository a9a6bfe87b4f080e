#include "kernels/values/float_formats.h"

#include <doctest/doctest.h>

#include <cstring>
#include <vector>

#include "exact_buffer.h"

namespace torchparquet::kernels {
namespace {

using testing::ExactBuffer;

// The float16 of bit patterns of float32, one by one.
std::vector<uint16_t> OneByOne(const std::vector<uint32_t>& patterns) {
  std::vector<uint16_t> halves;
  for (const uint32_t bits : patterns) {
    halves.push_back(Float16Bits(std::bit_cast<float>(bits)));
  }
  return halves;
}

std::vector<uint16_t> Together(const std::vector<uint32_t>& patterns) {
  // Not aligned.
  ExactBuffer<uint8_t> in(4 * patterns.size() + 1);
  if (!patterns.empty()) {
    std::memcpy(in.data() + 1, patterns.data(), 4 * patterns.size());
  }
  std::vector<uint16_t> halves(patterns.size());
  ExactBuffer<uint8_t> out(2 * patterns.size() + 1);
  for (const auto convert : {&Float16s, &PlainFloat16s}) {
    const std::vector<uint16_t> before = halves;
    convert(in.data() + 1, static_cast<int64_t>(patterns.size()), out.data() + 1);
    if (!halves.empty()) std::memcpy(halves.data(), out.data() + 1, 2 * halves.size());
    if (convert == &PlainFloat16s) CHECK(halves == before);
  }
  return halves;
}

TEST_CASE(
    "many float32 become what each becomes: every sign, exponent and upper digits") {
  // Around each number that is halfway between two of float16, subnormal ones too, and
  // the payloads of NaNs.
  const std::vector<uint32_t> ends = {0,      1,      0xFFF,  0x1000, 0x1001, 0x1FFF,
                                      0x2000, 0x2FFF, 0x3000, 0x3001, 0x8000, 0xFFFF};
  std::vector<uint32_t> patterns;
  for (uint32_t upper = 0; upper < 0x10000; ++upper) {
    for (const uint32_t end : ends) patterns.push_back(upper << 16 | end);
  }
  CHECK(Together(patterns) == OneByOne(patterns));
}

TEST_CASE("any number of float32") {
  std::vector<uint32_t> patterns;
  for (uint32_t i = 0; i < 40; ++i) {
    CHECK(Together(patterns) == OneByOne(patterns));
    patterns.push_back(0x3F800000 + 0x123456 * i);
  }
}

}  // namespace
}  // namespace torchparquet::kernels
