#include "columns/values/byte_array_values.h"

#include <doctest/doctest.h>

#include <bit>
#include <map>
#include <string>
#include <vector>

#include "caught.h"
#include "draws.h"
#include "encoders/arrow_encodings.h"
#include "encoders/byte_array_steps.h"
#include "encoders/page_headers.h"
#include "encoders/rle_bit_packed_encoder.h"
#include "exact_buffer.h"

namespace torchparquet {
namespace {

using testing::ArrowEncoding;
using testing::DataPage;
using testing::DictionaryPage;
using testing::Draws;
using testing::ExactBuffer;
using testing::kDeltaByteArray;
using testing::kDeltaLengthByteArray;
using testing::kPlain;
using testing::kPlainDictionary;
using testing::kRleDictionary;
using testing::RleBitPackedEncoder;
using testing::Throws;

using Strings = std::vector<std::string>;

// Reads a dictionary whose page is gone, and changed, when it is used.
void ReadDictionary(ByteArrayValues* values, const Strings& words) {
  ExactBuffer<uint8_t> page(testing::ArrowEncode(ArrowEncoding::kPlain, words));
  values->ReadDictionary(DictionaryPage(std::ssize(words)), page.span());
  std::fill(page.span().begin(), page.span().end(), uint8_t{0xDB});
}

// A page of indices, after the byte that tells their width.
std::vector<uint8_t> Indices(Draws& draws, const Strings& words, const Strings& values,
                             int extra_bits) {
  std::map<std::string, uint32_t> index_of;
  for (size_t i = 0; i < words.size(); ++i) {
    index_of.emplace(words[i], static_cast<uint32_t>(i));
  }
  const int width = static_cast<int>(std::bit_width(words.size())) + extra_bits;
  RleBitPackedEncoder encoder(width);
  for (size_t i = 0; i < values.size();) {
    if (draws.OneIn(3)) {
      size_t end = i;
      while (end < values.size() && values[end] == values[i]) ++end;
      encoder.AppendRepeated(index_of.at(values[i]), static_cast<int64_t>(end - i));
      i = end;
      continue;
    }
    std::vector<uint32_t> packed;
    for (int64_t left = 8 * draws.Between(1, 20); left > 0 && i < values.size(); --left) {
      packed.push_back(index_of.at(values[i++]));
    }
    packed.resize((packed.size() + 7) / 8 * 8);
    encoder.AppendPacked(packed);
  }
  std::vector<uint8_t> bytes{static_cast<uint8_t>(width)};
  bytes.insert(bytes.end(), encoder.bytes().begin(), encoder.bytes().end());
  return bytes;
}

TEST_CASE("pages of every encoding, whatever the chunk's other pages are") {
  Draws draws(240);
  ColumnBuffers buffers;  // from chunk to chunk
  for (const int64_t size : {1, 7, 8, 513, 2000}) {
    for (const Strings& strings : testing::StringShapes(draws, size)) {
      ByteArrayValues values(&buffers);
      for (const auto& [number, encoding] :
           {std::pair{kPlain, ArrowEncoding::kPlain},
            std::pair{kDeltaLengthByteArray, ArrowEncoding::kDeltaLengthByteArray},
            std::pair{kDeltaByteArray, ArrowEncoding::kDeltaByteArray}}) {
        ExactBuffer<uint8_t> page(testing::ArrowEncode(encoding, strings));
        const auto reader =
            values.Open(DataPage(number, std::ssize(strings)), page.span());
        testing::CheckSteps(draws, *reader, strings);
      }
    }
  }
}

TEST_CASE("dictionaries of every shape, by indices of any width") {
  Draws draws(241);
  ColumnBuffers buffers;
  for (const int64_t size : {1, 2, 3, 255, 256, 700}) {
    for (const Strings& words : testing::StringShapes(draws, size)) {
      ByteArrayValues values(&buffers);
      ReadDictionary(&values, words);
      for (int64_t i = 0; i < size; ++i) {
        REQUIRE(values.dictionary().value(i) == words[static_cast<size_t>(i)]);
      }
      for (const int encoding : {kPlainDictionary, kRleDictionary}) {
        Strings strings;
        while (strings.size() < 1500) {
          const auto count = static_cast<size_t>(draws.OneIn(9) ? 40 : 1);
          const auto word = static_cast<size_t>(draws.Below(size));
          strings.insert(strings.end(), count, words[word]);
        }
        const auto extra_bits = static_cast<int>(draws.OneIn(3) ? draws.Below(9) : 0);
        ExactBuffer<uint8_t> page(Indices(draws, words, strings, extra_bits));
        const auto reader =
            values.Open(DataPage(encoding, std::ssize(strings)), page.span());
        // The filling after the last value of a packed run is not told from values.
        strings.resize(1490);
        kernels::ByteSink sink;
        for (auto next = strings.begin(); next != strings.end();) {
          const int64_t count = draws.Between(
              0, std::min<int64_t>(strings.end() - next, draws.OneIn(4) ? 1500 : 20));
          if (draws.OneIn(4)) {
            reader->Skip(count);
          } else {
            CHECK(testing::ReadStrings(*reader, count, &sink) ==
                  Strings(next, next + count));
          }
          next += count;
        }
      }
    }
  }
}

TEST_CASE("what goes beyond the dictionary is an error") {
  ColumnBuffers buffers;
  const std::vector<uint8_t> index_3{2, 2, 3};  // width, a run of one, its value
  kernels::ByteSink sink;
  const auto read = [&](const ByteArrayValues& values, std::vector<uint8_t> bytes) {
    ExactBuffer<uint8_t> page(bytes);
    const auto reader = values.Open(DataPage(kRleDictionary, 1), page.span());
    return testing::ReadStrings(*reader, 1, &sink);
  };
  ByteArrayValues without(&buffers);
  CHECK(Throws(ErrorKind::kCorruptFile, [&] { read(without, index_3); }));
  CHECK(Throws(ErrorKind::kCorruptFile, [&] { read(without, {0, 2}); }));
  ByteArrayValues three(&buffers);
  ReadDictionary(&three, {"a", "b", "c"});
  CHECK(Throws(ErrorKind::kCorruptFile, [&] { read(three, index_3); }));
  CHECK(Throws(ErrorKind::kCorruptFile, [&] { read(three, {33, 2, 0, 0, 0, 0, 0}); }));
  ByteArrayValues four(&buffers);
  ReadDictionary(&four, {"a", "b", "c", "d"});
  CHECK(read(four, index_3) == Strings{"d"});
  CHECK(Throws(ErrorKind::kCorruptFile, [&] { ReadDictionary(&four, {"a"}); }));
}

TEST_CASE("a dictionary cut at any byte is an error, and so is one in another encoding") {
  Draws draws(242);
  for (const Strings& words : testing::StringShapes(draws, 9)) {
    const std::vector<uint8_t> whole = testing::ArrowEncode(ArrowEncoding::kPlain, words);
    for (size_t size = 0; size < whole.size(); size += whole.size() > 2000 ? 97 : 1) {
      ExactBuffer<uint8_t> cut(std::span<const uint8_t>(whole).first(size));
      ColumnBuffers buffers;
      ByteArrayValues values(&buffers);
      CHECK(Throws(ErrorKind::kCorruptFile,
                   [&] { values.ReadDictionary(DictionaryPage(9), cut.span()); }));
    }
  }
  ColumnBuffers buffers;
  ByteArrayValues values(&buffers);
  ExactBuffer<uint8_t> page(std::vector<uint8_t>{1, 0, 0, 0, 'a'});
  CHECK(Throws(ErrorKind::kCorruptFile, [&] {
    values.ReadDictionary(DictionaryPage(1, kRleDictionary), page.span());
  }));
  for (const int64_t num_values : {int64_t{2}, int64_t{INT32_MAX}}) {
    CHECK(Throws(ErrorKind::kCorruptFile, [&] {
      values.ReadDictionary(DictionaryPage(num_values), page.span());
    }));
  }
  ByteArrayValues empty(&buffers);
  empty.ReadDictionary(DictionaryPage(0, kPlainDictionary), {});
  CHECK(empty.dictionary().entries()->num_values() == 0);
}

TEST_CASE("a page of nulls may have no bytes, and values have no other encodings") {
  ColumnBuffers buffers;
  const ByteArrayValues values(&buffers);
  kernels::ByteSink sink;
  for (const int encoding :
       {kPlain, kPlainDictionary, kRleDictionary, kDeltaByteArray, 4}) {
    const auto reader = values.Open(DataPage(encoding, 3), {});
    reader->Skip(0);
    reader->Read(0, nullptr, &sink);
    CHECK(Throws(ErrorKind::kCorruptFile, [&] { reader->Skip(1); }));
    CHECK(Throws(ErrorKind::kCorruptFile,
                 [&] { testing::ReadStrings(*reader, 1, &sink); }));
  }
  ExactBuffer<uint8_t> page(std::vector<uint8_t>{1, 0, 0, 0, 'a'});
  for (const int encoding : {1, 3, 4, 5, 9, 77}) {
    CHECK(Throws(ErrorKind::kCorruptFile,
                 [&] { values.Open(DataPage(encoding, 1), page.span()); }));
  }
}

}  // namespace
}  // namespace torchparquet
