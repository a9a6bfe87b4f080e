#include "columns/values/vocabulary.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <limits>
#include <string>
#include <vector>

#include "caught.h"
#include "draws.h"
#include "encoders/arrow_encodings.h"
#include "encoders/page_headers.h"
#include "encoders/rle_bit_packed_encoder.h"
#include "exact_buffer.h"

namespace torchparquet {
namespace {

using testing::ArrowEncoding;
using testing::Draws;
using testing::ExactBuffer;
using testing::Throws;

constexpr int64_t kPlenty = std::numeric_limits<int64_t>::max();

using Strings = std::vector<std::string>;

// Some words, the empty one and ones with zeros and other bytes among them.
Strings Words(Draws& draws, int64_t num_words) {
  Strings words{"", std::string("\0", 1), std::string("\0\0", 2), "\xff\xfe"};
  for (int64_t i = 0; i < num_words; ++i) {
    words.push_back("word " + std::to_string(i) +
                    std::string(static_cast<size_t>(draws.Below(30)), 'x'));
  }
  return words;
}

// By looking through all words.
int64_t CodeOf(const Strings& words, const std::string& word, int64_t unknown_code) {
  const auto found = std::find(words.begin(), words.end(), word);
  return found == words.end() ? unknown_code : found - words.begin();
}

template <typename Out>
void CheckCodes(ValueReader<Out>& reader, const Strings& strings, const Strings& words,
                int64_t unknown_code, Draws& draws) {
  int64_t num_wrong = 0;
  for (int64_t position = 0; position < std::ssize(strings);) {
    const int64_t count = draws.Between(
        0, std::min(std::ssize(strings) - position, draws.OneIn(4) ? 1500 : int64_t{20}));
    if (draws.OneIn(3)) {
      reader.Skip(count);
    } else {
      ExactBuffer<Out> codes(static_cast<size_t>(count));
      reader.Read(codes.data(), count);
      for (int64_t i = 0; i < count; ++i) {
        const auto& word = strings[static_cast<size_t>(position + i)];
        num_wrong +=
            codes.data()[i] != static_cast<Out>(CodeOf(words, word, unknown_code));
      }
    }
    position += count;
  }
  CHECK(num_wrong == 0);
}

TEST_CASE_TEMPLATE("codes of strings, from a dictionary and without", Out, uint8_t,
                   uint16_t, uint32_t, uint64_t) {
  Draws draws(250);
  ColumnBuffers buffers;
  for (const int64_t unknown_code : {-1, 0, 100}) {
    const Strings words = Words(draws, 90);
    const auto vocabulary = std::make_shared<const Vocabulary>(words, unknown_code);
    Strings strings;
    while (strings.size() < 3000) {
      const auto word = static_cast<size_t>(draws.Below(std::ssize(words)));
      strings.push_back(draws.OneIn(5) ? words[word] + "?" : words[word]);
    }
    const auto values = MakeCodeValues<Out>(vocabulary, kPlenty, &buffers);
    // The dictionary has words that the vocabulary lacks, in another order.
    Strings dictionary = words;
    for (const std::string& word : words) dictionary.push_back(word + "?");
    std::ranges::reverse(dictionary);
    {
      ExactBuffer<uint8_t> page(testing::ArrowEncode(ArrowEncoding::kPlain, dictionary));
      values->ReadDictionary(testing::DictionaryPage(std::ssize(dictionary)),
                             page.span());
    }
    for (const auto& [number, encoding] :
         {std::pair{testing::kPlain, ArrowEncoding::kPlain},
          std::pair{testing::kDeltaLengthByteArray, ArrowEncoding::kDeltaLengthByteArray},
          std::pair{testing::kDeltaByteArray, ArrowEncoding::kDeltaByteArray}}) {
      ExactBuffer<uint8_t> page(testing::ArrowEncode(encoding, strings));
      const auto reader =
          values->OpenPage(testing::DataPage(number, std::ssize(strings)), page.span());
      CheckCodes(*reader, strings, words, unknown_code, draws);
    }
    testing::RleBitPackedEncoder indices(8);
    std::vector<uint32_t> packed;
    for (const std::string& string : strings) {
      packed.push_back(static_cast<uint32_t>(CodeOf(dictionary, string, -1)));
    }
    indices.AppendPacked(packed);
    std::vector<uint8_t> bytes = indices.bytes();
    bytes.insert(bytes.begin(), 8);
    ExactBuffer<uint8_t> page(bytes);
    const auto reader = values->OpenPage(
        testing::DataPage(testing::kRleDictionary, std::ssize(strings)), page.span());
    CheckCodes(*reader, strings, words, unknown_code, draws);
    const auto empty =
        values->OpenPage(testing::DataPage(testing::kRleDictionary, 5), {});
    Out code;
    CHECK(Throws(ErrorKind::kCorruptFile, [&] { empty->Read(&code, 1); }));
  }
}

TEST_CASE("strings much longer than their page take bounded memory") {
  // Each string but the first is the one before it: a page of little more than one.
  const Strings strings(512, std::string(10'000, 'a'));
  ExactBuffer<uint8_t> page(
      testing::ArrowEncode(ArrowEncoding::kDeltaByteArray, strings));
  REQUIRE(page.size() < 20'000);
  const auto vocabulary = std::make_shared<const Vocabulary>(Strings{"b"}, -1);
  for (const int64_t max_bytes : {5'120'000, 5'119'999}) {
    ColumnBuffers buffers;
    const auto values = MakeCodeValues<uint8_t>(vocabulary, max_bytes, &buffers);
    const auto reader =
        values->OpenPage(testing::DataPage(testing::kDeltaByteArray, 512), page.span());
    std::vector<uint8_t> codes(512);
    const auto read = [&] { reader->Read(codes.data(), 512); };
    if (max_bytes < 5'120'000) {
      CHECK(Throws(ErrorKind::kOutOfMemory, read));
    } else {
      read();
      CHECK(codes == std::vector<uint8_t>(512, 255));
    }
  }
}

TEST_CASE("a vocabulary must not repeat a word") {
  const auto error = testing::Caught([] { Vocabulary({"a", "b", "a"}, 0); });
  REQUIRE(error);
  CHECK(error->kind() == ErrorKind::kInvalidArgument);
  CHECK(testing::Mentions(*error, "a"));
  const Vocabulary none({}, 7);
  CHECK(none.CodeOf("") == 7);
}

}  // namespace
}  // namespace torchparquet
