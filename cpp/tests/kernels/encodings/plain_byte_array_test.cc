#include <doctest/doctest.h>

#include <string>
#include <vector>

#include "caught.h"
#include "draws.h"
#include "encoders/arrow_encodings.h"
#include "encoders/byte_array_steps.h"
#include "exact_buffer.h"
#include "kernels/encodings/byte_arrays.h"

namespace torchparquet::kernels {
namespace {

using testing::ArrowEncoding;
using testing::Draws;
using testing::EncodePlain;
using testing::ExactBuffer;
using testing::Throws;

TEST_CASE("values of every shape, in random steps") {
  Draws draws(71);
  for (const int64_t size : {0, 1, 2, 33, 511, 512, 513, 2000}) {
    for (const auto& values : testing::StringShapes(draws, size)) {
      ExactBuffer<uint8_t> bytes(EncodePlain(values));
      CHECK(bytes.Copy() == testing::ArrowEncode(ArrowEncoding::kPlain, values));
      for (int trial = 0; trial < 3; ++trial) {
        PlainByteArrayReader reader(bytes.span());
        testing::CheckSteps(draws, reader, values);
      }
    }
  }
}

TEST_CASE("input cut at any byte is an error, values before it are right") {
  Draws draws(72);
  for (const auto& values : testing::StringShapes(draws, 20)) {
    const std::vector<uint8_t> whole = EncodePlain(values);
    for (size_t size = 0; size < whole.size(); ++size) {
      ExactBuffer<uint8_t> cut(std::span<const uint8_t>(whole).first(size));
      PlainByteArrayReader reader(cut.span());
      ByteSink sink;
      CHECK(Throws(ErrorKind::kCorruptFile, [&] {
        for (const std::string& value : values) {
          const auto read = testing::ReadStrings(reader, 1, &sink);
          REQUIRE(read.front() == value);
        }
      }));
      PlainByteArrayReader at_once(cut.span());
      CHECK(Throws(ErrorKind::kCorruptFile,
                   [&] { testing::ReadStrings(at_once, 20, &sink); }));
    }
  }
}

TEST_CASE("a length beyond the page allocates nothing") {
  for (const uint8_t top : std::vector<uint8_t>{0x00, 0x7F, 0x80, 0xFF}) {
    ExactBuffer<uint8_t> bytes(std::vector<uint8_t>{5, 0, 0, top, 'a', 'b', 'c', 'd'});
    PlainByteArrayReader reader(bytes.span());
    ByteSink sink;
    CHECK(
        Throws(ErrorKind::kCorruptFile, [&] { testing::ReadStrings(reader, 1, &sink); }));
    CHECK(sink.capacity() == 0);
    CHECK(Throws(ErrorKind::kCorruptFile, [&] { reader.Skip(1); }));
  }
}

TEST_CASE("a full sink is an error of memory") {
  ExactBuffer<uint8_t> bytes(EncodePlain({"abc", "defg"}));
  PlainByteArrayReader reader(bytes.span());
  ByteSink sink;
  sink.set_max_bytes(6);
  CHECK(Throws(ErrorKind::kValuesTooLarge,
               [&] { testing::ReadStrings(reader, 2, &sink); }));
}

TEST_CASE("damaged input gives values or the one kind of error") {
  Draws draws(73);
  for (int trial = 0; trial < 500; ++trial) {
    for (const auto& values : testing::StringShapes(draws, 30)) {
      std::vector<uint8_t> damaged = EncodePlain(values);
      for (int64_t i = draws.Between(1, 3); i > 0; --i) {
        damaged[static_cast<size_t>(draws.Below(static_cast<int64_t>(damaged.size())))] =
            static_cast<uint8_t>(draws.Bits());
      }
      ExactBuffer<uint8_t> bytes(damaged);
      PlainByteArrayReader reader(bytes.span());
      ByteSink sink;
      const auto error =
          testing::Caught([&] { testing::ReadStrings(reader, 30, &sink); });
      if (error) CHECK(error->kind() == ErrorKind::kCorruptFile);
    }
  }
}

}  // namespace
}  // namespace torchparquet::kernels
