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

struct Part {
  uint32_t prefix_length;
  std::string suffix;
};

std::vector<uint8_t> EncodeParts(const std::vector<Part>& parts) {
  std::vector<uint32_t> prefix_lengths;
  std::vector<uint32_t> suffix_lengths;
  for (const Part& part : parts) {
    prefix_lengths.push_back(part.prefix_length);
    suffix_lengths.push_back(static_cast<uint32_t>(part.suffix.size()));
  }
  std::vector<uint8_t> bytes = DeltaEncoder<uint32_t>().Encode(prefix_lengths);
  const auto more = DeltaEncoder<uint32_t>().Encode(suffix_lengths);
  bytes.insert(bytes.end(), more.begin(), more.end());
  for (const Part& part : parts) {
    bytes.insert(bytes.end(), part.suffix.begin(), part.suffix.end());
  }
  return bytes;
}

// Shares as much as can be, or with `draws` often less.
std::vector<uint8_t> Encode(const std::vector<std::string>& values,
                            Draws* draws = nullptr) {
  std::vector<Part> parts;
  std::string previous;
  for (const std::string& value : values) {
    size_t shared = 0;
    while (shared < std::min(value.size(), previous.size()) &&
           value[shared] == previous[shared]) {
      ++shared;
    }
    if (draws != nullptr && draws->OneIn(2)) {
      shared = static_cast<size_t>(draws->Between(0, static_cast<int64_t>(shared)));
    }
    parts.push_back({static_cast<uint32_t>(shared), value.substr(shared)});
    previous = value;
  }
  return EncodeParts(parts);
}

TEST_CASE("values of every shape, in random steps") {
  Draws draws(91);
  for (const int64_t size : {0, 1, 2, 33, 511, 512, 513, 2000}) {
    for (const auto& values : testing::StringShapes(draws, size)) {
      const std::vector<uint8_t> ours = Encode(values, &draws);
      CHECK(testing::ArrowDecode<std::string>(ArrowEncoding::kDeltaByteArray, ours,
                                              size) == values);
      for (const std::vector<uint8_t>& encoded :
           {ours, testing::ArrowEncode(ArrowEncoding::kDeltaByteArray, values)}) {
        ExactBuffer<uint8_t> bytes(encoded);
        for (int trial = 0; trial < 3; ++trial) {
          DeltaByteArrayReader reader(bytes.span(), size);
          testing::CheckSteps(draws, reader, values);
        }
      }
    }
  }
}

TEST_CASE("input cut at any byte is an error") {
  Draws draws(92);
  for (const auto& values : testing::StringShapes(draws, 40)) {
    // Otherwise what is missing may be padding.
    if (Encode(values).back() == 0) continue;
    const std::vector<uint8_t> whole = Encode(values);
    for (size_t size = 0; size < whole.size(); ++size) {
      ExactBuffer<uint8_t> cut(std::span<const uint8_t>(whole).first(size));
      CHECK(
          Throws(ErrorKind::kCorruptFile, [&] { DeltaByteArrayReader(cut.span(), 40); }));
    }
  }
}

TEST_CASE("a prefix longer than the value before it") {
  const auto reads = [](const std::vector<Part>& parts, int64_t skipped) {
    ExactBuffer<uint8_t> bytes(EncodeParts(parts));
    const auto num_values = static_cast<int64_t>(parts.size());
    DeltaByteArrayReader reader(bytes.span(), num_values);
    ByteSink sink;
    return !Throws(ErrorKind::kCorruptFile, [&] {
      reader.Skip(skipped);
      testing::ReadStrings(reader, num_values - skipped, &sink);
    });
  };
  for (const int64_t skipped : {0, 1, 2, 3}) {
    CHECK(reads({{0, "abc"}, {3, "d"}, {4, ""}}, skipped));
    CHECK_FALSE(reads({{0, "abc"}, {3, "d"}, {5, ""}}, skipped));
    CHECK_FALSE(reads({{0, "abc"}, {4, "d"}, {4, ""}}, skipped));
    CHECK_FALSE(reads({{1, "abc"}, {0, "d"}, {0, ""}}, skipped));
    CHECK_FALSE(reads({{0, "abc"}, {0xFFFFFFFF, "d"}, {0, ""}}, skipped));
  }
}

TEST_CASE("counts that differ, or are more than the page header's") {
  const auto opens = [](int64_t num_prefixes, int64_t num_suffixes, int64_t max_values) {
    std::vector<uint8_t> encoded = DeltaEncoder<uint32_t>().Encode(
        std::vector<uint32_t>(static_cast<size_t>(num_prefixes)));
    const auto more = DeltaEncoder<uint32_t>().Encode(
        std::vector<uint32_t>(static_cast<size_t>(num_suffixes)));
    encoded.insert(encoded.end(), more.begin(), more.end());
    ExactBuffer<uint8_t> bytes(encoded);
    return !Throws(ErrorKind::kCorruptFile,
                   [&] { DeltaByteArrayReader(bytes.span(), max_values); });
  };
  CHECK(opens(5, 5, 5));
  CHECK(opens(5, 5, 9));
  CHECK_FALSE(opens(5, 5, 4));
  CHECK_FALSE(opens(5, 6, 9));
  CHECK_FALSE(opens(6, 5, 9));
}

TEST_CASE("a small page that stands for much memory stops at the sink's limit") {
  std::vector<Part> parts(20000, Part{100000, ""});
  parts.front() = {0, std::string(100000, 'x')};
  ExactBuffer<uint8_t> bytes(EncodeParts(parts));
  DeltaByteArrayReader reader(bytes.span(), 20000);
  ByteSink sink;
  sink.set_max_bytes(1 << 20);
  CHECK(Throws(ErrorKind::kValuesTooLarge,
               [&] { testing::ReadStrings(reader, 20000, &sink); }));
  CHECK(sink.capacity() <= (1 << 20) + ByteSink::kSlackBytes);
  DeltaByteArrayReader skipping(bytes.span(), 20000);
  skipping.Skip(19999);
  CHECK(testing::ReadStrings(skipping, 1, &sink).front() == parts.front().suffix);
}

TEST_CASE("damaged input gives values or the one kind of error") {
  Draws draws(93);
  for (int trial = 0; trial < 500; ++trial) {
    for (const auto& values : testing::StringShapes(draws, 60)) {
      std::vector<uint8_t> damaged = Encode(values);
      for (int64_t i = draws.Between(1, 3); i > 0; --i) {
        const auto bound = std::min<int64_t>(static_cast<int64_t>(damaged.size()), 120);
        damaged[static_cast<size_t>(draws.Below(bound))] =
            static_cast<uint8_t>(draws.Bits());
      }
      ExactBuffer<uint8_t> bytes(damaged);
      const auto error = testing::Caught([&] {
        DeltaByteArrayReader reader(bytes.span(), 60);
        DeltaByteArrayReader skipping(bytes.span(), 60);
        ByteSink sink;
        testing::ReadStrings(reader, 60, &sink);
        skipping.Skip(60);
      });
      if (error) CHECK(error->kind() == ErrorKind::kCorruptFile);
    }
  }
}

}  // namespace
}  // namespace torchparquet::kernels
