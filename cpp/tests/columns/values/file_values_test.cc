#include "columns/values/file_values.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <cstring>
#include <string>
#include <utility>
#include <vector>

#include "caught.h"
#include "draws.h"
#include "encoders/byte_array_steps.h"
#include "exact_buffer.h"
#include "format/source.h"

namespace torchparquet {
namespace {

using testing::Draws;
using testing::EncodePlain;
using testing::ExactBuffer;
using testing::Throws;

// A file in memory of exactly its size, which counts what is read.
class MemoryFile : public Source {
 public:
  explicit MemoryFile(const std::vector<uint8_t>& content)
      : Source("memory"), content_(content) {}
  void ReadAt(int64_t offset, int64_t num_bytes, uint8_t* out) const override {
    REQUIRE(offset + num_bytes <= std::ssize(content_));
    std::copy_n(content_.begin() + offset, num_bytes, out);
    num_read_ += num_bytes;
  }
  int64_t num_read() const { return num_read_; }

 private:
  const std::vector<uint8_t> content_;
  mutable int64_t num_read_ = 0;
};

constexpr int64_t kBegin = 11;  // of the page's values in the file
constexpr int64_t kAfter = 700'000;

// A page's values within a file, as they are read.
struct Opened {
  explicit Opened(const std::vector<uint8_t>& values)
      : file([&] {
          std::vector<uint8_t> content(kBegin, 0xEE);
          content.insert(content.end(), values.begin(), values.end());
          content.resize(content.size() + kAfter, 0xEE);
          return content;
        }()),
        ahead(&file),
        bytes(&ahead, {kBegin, std::ssize(values)}) {
    ahead.Use(&memory);
  }

  MemoryFile file;
  ScratchBuffer memory;
  ReadAhead ahead;
  ValueBytes bytes;
};

// Strings that end before, at and after the ends of pieces.
std::vector<std::string> LongStrings(Draws& draws, int64_t num_values) {
  std::vector<std::string> values;
  for (int64_t i = 0; i < num_values; ++i) {
    const int64_t pieces = draws.Below(3) * kFilePieceBytes;
    const int64_t length = draws.OneIn(3) ? draws.Below(40) : pieces + draws.Below(9) - 4;
    values.emplace_back(static_cast<size_t>(std::max<int64_t>(0, length)),
                        static_cast<char>(draws.Bits()));
  }
  return values;
}

TEST_CASE("strings in random steps") {
  Draws draws(91);
  std::vector<std::vector<std::string>> shapes = testing::StringShapes(draws, 4000);
  for (int i = 0; i < 8; ++i) shapes.push_back(LongStrings(draws, 40));
  for (const auto& values : shapes) {
    Opened page(EncodePlain(values));
    testing::CheckSteps(draws, *OpenFileByteArrays(page.bytes), values);
  }
}

TEST_CASE("a page takes a piece of memory, and passing over long strings reads little") {
  const std::vector<std::string> values(20, std::string(3 * kFilePieceBytes, 'x'));
  Opened page(EncodePlain(values));
  const auto reader = OpenFileByteArrays(page.bytes);
  reader->Skip(19);
  CHECK(page.file.num_read() < 20 * 5000);
  kernels::ByteSink sink;
  CHECK(testing::ReadStrings(*reader, 1, &sink).front() == values.back());
  CHECK(page.file.num_read() < 20 * 5000 + 4 * kFilePieceBytes);
  CHECK(static_cast<int64_t>(page.memory.capacity()) <= 2 * kFilePieceBytes);
}

TEST_CASE("a page that is cut, and a length that goes beyond it, are errors") {
  Draws draws(92);
  for (int trial = 0; trial < 20; ++trial) {
    const std::vector<uint8_t> whole = EncodePlain(LongStrings(draws, 6));
    std::vector<uint8_t> cut = whole;
    cut.resize(static_cast<size_t>(draws.Below(std::ssize(whole))));
    Opened page(cut);
    CHECK(Throws(ErrorKind::kCorruptFile, [&] {
      kernels::ByteSink sink;
      testing::ReadStrings(*OpenFileByteArrays(page.bytes), 6, &sink);
    }));
    CHECK(Throws(ErrorKind::kCorruptFile,
                 [&] { OpenFileByteArrays(page.bytes)->Skip(6); }));
  }
}

TEST_CASE("numbers in random steps, also where they are cast") {
  Draws draws(93);
  std::vector<int32_t> values(200'000);
  for (int32_t& value : values) value = static_cast<int32_t>(draws.Bits());
  std::vector<uint8_t> stored(values.size() * sizeof(int32_t));
  std::memcpy(stored.data(), values.data(), stored.size());
  const kernels::StoredType type{.stored = kernels::Stored::kInt32, .num_bytes = 4};
  for (const auto dtype : {kernels::Dtype::kInt32, kernels::Dtype::kInt64}) {
    const auto conversion = kernels::Conversion::Find(type, dtype);
    REQUIRE(conversion);
    Opened page(stored);
    const auto check = [&]<typename Out>(Out) {
      FilePlainReader<Out> reader(page.bytes, *conversion);
      for (size_t next = 0; next < values.size();) {
        const auto count = static_cast<size_t>(std::min(
            draws.Below(100'000), std::ssize(values) - static_cast<int64_t>(next)));
        if (draws.OneIn(3)) {
          reader.Skip(static_cast<int64_t>(count));
        } else {
          ExactBuffer<Out> out(count);
          reader.Read(out.data(), static_cast<int64_t>(count));
          for (size_t i = 0; i < count; ++i) {
            const auto signed_out = static_cast<int64_t>(
                sizeof(Out) == 4 ? static_cast<int32_t>(out.data()[i])
                                 : static_cast<int64_t>(out.data()[i]));
            if (signed_out != values[next + i]) FAIL("value ", next + i);
          }
        }
        next += count;
      }
      CHECK(Throws(ErrorKind::kCorruptFile, [&] { reader.Skip(1); }));
    };
    if (dtype == kernels::Dtype::kInt32) {
      check(uint32_t{});
    } else {
      check(uint64_t{});
    }
  }
}

}  // namespace
}  // namespace torchparquet
