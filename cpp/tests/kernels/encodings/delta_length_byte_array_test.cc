#include <doctest/doctest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "caught.h"
#include "draws.h"
#include "encoders/arrow_encodings.h"
#include "encoders/byte_array_steps.h"
#include "encoders/delta_encoder.h"
#include "exact_buffer.h"
#include "kernels/encodings/byte_arrays.h"

namespace torchparquet::kernels {
namespace {

using testing::ArrowEncoding;
using testing::DeltaEncoder;
using testing::Draws;
using testing::ExactBuffer;
using testing::Throws;

std::vector<uint8_t> Encode(const std::vector<std::string>& values) {
  std::vector<uint32_t> lengths;
  for (const auto& value : values) lengths.push_back(static_cast<uint32_t>(value.size()));
  std::vector<uint8_t> bytes = DeltaEncoder<uint32_t>().Encode(lengths);
  for (const auto& value : values) bytes.insert(bytes.end(), value.begin(), value.end());
  return bytes;
}

TEST_CASE("values of every shape, in random steps") {
  Draws draws(81);
  for (const int64_t size : {0, 1, 2, 33, 511, 512, 513, 2000}) {
    for (const auto& values : testing::StringShapes(draws, size)) {
      const std::vector<uint8_t> ours = Encode(values);
      CHECK(testing::ArrowDecode<std::string>(ArrowEncoding::kDeltaLengthByteArray, ours,
                                              size) == values);
      for (const std::vector<uint8_t>& encoded :
           {ours, testing::ArrowEncode(ArrowEncoding::kDeltaLengthByteArray, values)}) {
        ExactBuffer<uint8_t> bytes(encoded);
        DeltaLengthByteArrayReader reader(bytes.span(), size);
        CHECK(reader.num_values() == size);
        testing::CheckSteps(draws, reader, values);
      }
    }
  }
}

TEST_CASE("input cut at any byte is an error from the start") {
  Draws draws(82);
  for (const auto& values : testing::StringShapes(draws, 40)) {
    const std::vector<uint8_t> whole = Encode(values);
    for (size_t size = 0; size < whole.size(); ++size) {
      ExactBuffer<uint8_t> cut(std::span<const uint8_t>(whole).first(size));
      // Without bytes of values, what is missing may be padding.
      if (values.front().empty() && values.back().empty()) {
        testing::Caught([&] { DeltaLengthByteArrayReader(cut.span(), 40); });
      } else {
        CHECK(Throws(ErrorKind::kCorruptFile,
                     [&] { DeltaLengthByteArrayReader(cut.span(), 40); }));
      }
    }
  }
}

TEST_CASE("lengths that cannot be") {
  const auto opens = [](const std::vector<uint32_t>& lengths, int64_t max_values) {
    std::vector<uint8_t> encoded = DeltaEncoder<uint32_t>().Encode(lengths);
    encoded.resize(encoded.size() + 100);
    ExactBuffer<uint8_t> bytes(encoded);
    return !Throws(ErrorKind::kCorruptFile,
                   [&] { DeltaLengthByteArrayReader(bytes.span(), max_values); });
  };
  CHECK(opens({40, 60}, 2));
  CHECK_FALSE(opens({40, 60}, 1));
  CHECK_FALSE(opens({41, 60}, 2));
  CHECK_FALSE(opens({0xFFFFFFFF, 1}, 2));
  CHECK_FALSE(opens({0x80000000, 0x80000000}, 2));
  CHECK_FALSE(opens(std::vector<uint32_t>(300, 0x7FFFFFFF), 300));
}

TEST_CASE("a full sink is an error of memory") {
  ExactBuffer<uint8_t> bytes(Encode({"abc", "defg"}));
  DeltaLengthByteArrayReader reader(bytes.span(), 2);
  ByteSink sink;
  sink.set_max_bytes(6);
  CHECK(Throws(ErrorKind::kValuesTooLarge,
               [&] { testing::ReadStrings(reader, 2, &sink); }));
}

TEST_CASE("damaged input gives values or the one kind of error") {
  Draws draws(83);
  for (int trial = 0; trial < 500; ++trial) {
    for (const auto& values : testing::StringShapes(draws, 60)) {
      std::vector<uint8_t> damaged = Encode(values);
      for (int64_t i = draws.Between(1, 3); i > 0; --i) {
        const auto bound = std::min<int64_t>(static_cast<int64_t>(damaged.size()), 60);
        damaged[static_cast<size_t>(draws.Below(bound))] =
            static_cast<uint8_t>(draws.Bits());
      }
      ExactBuffer<uint8_t> bytes(damaged);
      const auto error = testing::Caught([&] {
        DeltaLengthByteArrayReader reader(bytes.span(), 60);
        ByteSink sink;
        testing::ReadStrings(reader, reader.num_values(), &sink);
      });
      if (error) CHECK(error->kind() == ErrorKind::kCorruptFile);
    }
  }
}

}  // namespace
}  // namespace torchparquet::kernels
