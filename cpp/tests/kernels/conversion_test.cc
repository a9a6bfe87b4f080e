#include "kernels/conversion.h"

#include <doctest/doctest.h>

#include <cmath>
#include <cstring>
#include <limits>
#include <vector>

#include "caught.h"
#include "draws.h"
#include "exact_buffer.h"

namespace torchparquet::kernels {
namespace {

using testing::Draws;
using testing::ExactBuffer;
using testing::Throws;

// `values` as stored bytes that start at an odd address.
template <typename T>
ExactBuffer<uint8_t> Unaligned(const std::vector<T>& values) {
  ExactBuffer<uint8_t> bytes(values.size() * sizeof(T) + 1);
  if (!values.empty()) {
    std::memcpy(bytes.data() + 1, values.data(), values.size() * sizeof(T));
  }
  return bytes;
}

template <typename Converter, typename Stored>
std::vector<typename Converter::Out> Convert(const std::vector<Stored>& values) {
  static_assert(sizeof(Stored) == Converter::kStoredBytes);
  ExactBuffer<uint8_t> bytes = Unaligned(values);
  ExactBuffer<typename Converter::Out> out(values.size());
  Converter::Convert(bytes.data() + 1, static_cast<int64_t>(values.size()), out.data());
  return out.Copy();
}

TEST_CASE_TEMPLATE("SameBits keeps every bit", T, uint16_t, uint32_t, uint64_t) {
  Draws draws(2);
  for (const int64_t size : {0, 1, 7, 64, 1001}) {
    std::vector<T> values(static_cast<size_t>(size));
    for (T& value : values) value = static_cast<T>(draws.Bits());
    CHECK(Convert<SameBits<T>>(values) == values);
  }
}

TEST_CASE_TEMPLATE("NarrowedInt32 takes all values of its type and no other", Small,
                   int8_t, uint8_t, int16_t, uint16_t) {
  using Converter = NarrowedInt32<Small>;
  constexpr int32_t kLeast = std::numeric_limits<Small>::min();
  constexpr int32_t kGreatest = std::numeric_limits<Small>::max();
  std::vector<int32_t> all;
  std::vector<typename Converter::Out> expected;
  for (int32_t value = kLeast; value <= kGreatest; ++value) {
    all.push_back(value);
    expected.push_back(static_cast<typename Converter::Out>(value));
  }
  CHECK(Convert<Converter>(all) == expected);
  CHECK(Convert<Converter>(std::vector<int32_t>{}).empty());

  for (const int32_t misfit :
       {kLeast - 1, kGreatest + 1, std::numeric_limits<int32_t>::min(),
        std::numeric_limits<int32_t>::max()}) {
    for (const size_t place : {size_t{0}, all.size() / 2, all.size() - 1}) {
      CAPTURE(misfit);
      std::vector<int32_t> with_misfit = all;
      with_misfit[place] = misfit;
      CHECK(Throws(ErrorKind::kCorruptFile, [&] { Convert<Converter>(with_misfit); }));
    }
  }
}

TEST_CASE("WidenedInt32 keeps the sign") {
  const std::vector<int32_t> values{0,
                                    1,
                                    -1,
                                    20454,
                                    std::numeric_limits<int32_t>::min(),
                                    std::numeric_limits<int32_t>::max()};
  const std::vector<uint64_t> widened = Convert<WidenedInt32>(values);
  for (size_t i = 0; i < values.size(); ++i) {
    CHECK(static_cast<int64_t>(widened[i]) == values[i]);
  }
}

}  // namespace
}  // namespace torchparquet::kernels
