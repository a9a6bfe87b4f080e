#include "kernels/encodings/dictionary.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <vector>

#include "caught.h"
#include "draws.h"
#include "encoders/rle_bit_packed_encoder.h"
#include "exact_buffer.h"
#include "kernels/levels/selected.h"

namespace torchparquet::kernels {
namespace {

using testing::Draws;
using testing::ExactBuffer;
using testing::RleBitPackedEncoder;
using testing::Throws;

template <typename T>
void FillRandomly(Draws& draws, int64_t num_values, Dictionary<T>* dictionary) {
  dictionary->Resize(num_values);
  for (T& value : dictionary->values()) value = static_cast<T>(draws.Bits());
}

template <typename T>
std::vector<T> Look(const std::vector<uint32_t>& indices, Dictionary<T>& dictionary) {
  std::vector<T> values;
  for (const uint32_t index : indices) values.push_back(dictionary.values()[index]);
  return values;
}

// Picks some of the next values, whose bits begin anywhere.
template <typename T>
void CheckPicks(Draws& draws, std::span<const T> next, DictionaryReader<T>* reader) {
  const int64_t begin = draws.Between(0, 70);
  const int64_t end = begin + std::ssize(next);
  std::vector<BitWord> bits(static_cast<size_t>(NumWords(std::max<int64_t>(end, 1))));
  std::vector<T> expected;
  for (int64_t i = 0; i < end; ++i) {
    if (draws.OneIn(3)) continue;
    bits[static_cast<size_t>(i / kWordBits)] |= BitWord{1} << (i % kWordBits);
    if (i >= begin) expected.push_back(next[static_cast<size_t>(i - begin)]);
  }
  ExactBuffer<T> out(expected.size());
  reader->PickOnes(out.data(), bits.data(), begin, end);
  CHECK(std::equal(expected.begin(), expected.end(), out.data()));
}

// Reads and skips in random steps, and checks what was read.
template <typename T>
void CheckSteps(Draws& draws, std::span<const uint8_t> bytes, int width,
                Dictionary<T>& dictionary, const std::vector<T>& expected) {
  DictionaryReader<T> reader(bytes, width, &dictionary);
  size_t position = 0;
  while (position < expected.size()) {
    const auto left = static_cast<int64_t>(expected.size() - position);
    const auto count = static_cast<size_t>(
        draws.Between(0, std::min<int64_t>(left, draws.OneIn(3) ? 90 : 11)));
    if (draws.OneIn(2)) {
      reader.Skip(static_cast<int64_t>(count));
    } else if (draws.OneIn(2)) {
      CheckPicks(draws, {expected.data() + position, count}, &reader);
    } else {
      ExactBuffer<T> out(count);
      reader.Read(out.data(), static_cast<int64_t>(count));
      CHECK(std::equal(out.data(), out.data() + count, expected.data() + position));
    }
    position += count;
  }
}

// A dictionary that an index of `width` bits can address, its size no power of two
// where there is a choice.
int64_t DictionarySize(Draws& draws, int width) {
  return draws.Between(1, std::min<int64_t>(int64_t{1} << width, 3000));
}

TEST_CASE_TEMPLATE("random runs of every width, in random steps", T, uint8_t, uint16_t,
                   uint32_t, uint64_t) {
  Draws draws(7);
  for (int width = 0; width <= 32; ++width) {
    CAPTURE(width);
    for (int trial = 0; trial < 4; ++trial) {
      ScratchBuffer memory;
      Dictionary<T> dictionary(&memory);
      FillRandomly(draws, DictionarySize(draws, width), &dictionary);
      RleBitPackedEncoder encoder(width);
      encoder.AppendRandom(draws, 700, dictionary.num_values());
      ExactBuffer<uint8_t> bytes(encoder.bytes());
      const std::vector<T> expected = Look(encoder.values(), dictionary);
      CheckSteps(draws, bytes.span(), width, dictionary, expected);

      DictionaryReader<T> reader(bytes.span(), width, &dictionary);
      ExactBuffer<T> out(expected.size());
      const Stores stores = draws.OneIn(2) ? Stores::kCached : Stores::kStreaming;
      reader.Read(out.data(), static_cast<int64_t>(expected.size()), stores);
      EndStreamingStores();
      CHECK(out.Copy() == expected);
      T one;
      CHECK(Throws(ErrorKind::kCorruptFile, [&] { reader.Read(&one, 1); }));
      CHECK(Throws(ErrorKind::kCorruptFile, [&] { reader.Skip(1); }));
    }
  }
}

TEST_CASE("a skip to every offset") {
  Draws draws(8);
  for (const int width : {1, 5, 12}) {
    ScratchBuffer memory;
    Dictionary<uint32_t> dictionary(&memory);
    FillRandomly(draws, 1 << width, &dictionary);
    RleBitPackedEncoder encoder(width);
    encoder.AppendRandom(draws, 150, dictionary.num_values());
    ExactBuffer<uint8_t> bytes(encoder.bytes());
    const std::vector<uint32_t> expected = Look(encoder.values(), dictionary);
    for (size_t offset = 0; offset <= expected.size(); ++offset) {
      DictionaryReader<uint32_t> reader(bytes.span(), width, &dictionary);
      reader.Skip(static_cast<int64_t>(offset));
      ExactBuffer<uint32_t> out(expected.size() - offset);
      reader.Read(out.data(), static_cast<int64_t>(out.size()));
      CHECK(std::equal(out.data(), out.data() + out.size(), expected.data() + offset));
    }
  }
}

TEST_CASE("input cut at any byte gives the values before the cut, then an error") {
  Draws draws(9);
  for (const int width : {0, 1, 4, 9, 17, 32}) {
    CAPTURE(width);
    ScratchBuffer memory;
    Dictionary<uint16_t> dictionary(&memory);
    FillRandomly(draws, DictionarySize(draws, width), &dictionary);
    RleBitPackedEncoder encoder(width);
    encoder.AppendRandom(draws, 120, dictionary.num_values());
    encoder.AppendPacked(std::vector<uint32_t>(24));
    const std::vector<uint16_t> expected = Look(encoder.values(), dictionary);
    for (size_t size = 0; size < encoder.bytes().size(); ++size) {
      ExactBuffer<uint8_t> cut(std::span(encoder.bytes()).first(size));
      DictionaryReader<uint16_t> reader(cut.span(), width, &dictionary);
      size_t position = 0;
      const auto error = testing::Caught([&] {
        for (; position < expected.size(); ++position) {
          uint16_t value;
          reader.Read(&value, 1);
          CHECK(value == expected[position]);
        }
      });
      // Without bits to be missing, a packed run of width 0 is whole.
      if (width > 0) REQUIRE(error);
      if (error) CHECK(error->kind() == ErrorKind::kCorruptFile);
    }
  }
}

// Puts one illegal index among 200 legal ones.
void CheckIllegalIndex(Draws& draws, int width, int64_t dictionary_size, uint32_t illegal,
                       bool packed) {
  CAPTURE(width);
  CAPTURE(dictionary_size);
  CAPTURE(illegal);
  ScratchBuffer memory;
  Dictionary<uint64_t> dictionary(&memory);
  FillRandomly(draws, dictionary_size, &dictionary);
  std::vector<uint32_t> indices(200);
  for (uint32_t& index : indices) {
    index = static_cast<uint32_t>(draws.Below(std::max<int64_t>(dictionary_size, 1)));
  }
  const auto place = static_cast<size_t>(draws.Below(200));
  RleBitPackedEncoder encoder(width);
  if (packed) {
    indices[place] = illegal;
    encoder.AppendPacked(indices);
  } else {
    encoder.AppendPacked(std::vector<uint32_t>(8));
    encoder.AppendRepeated(illegal, 192);
  }
  ExactBuffer<uint8_t> bytes(encoder.bytes());
  ExactBuffer<uint64_t> out(200);
  DictionaryReader<uint64_t> at_once(bytes.span(), width, &dictionary);
  CHECK(Throws(ErrorKind::kCorruptFile, [&] { at_once.Read(out.data(), 200); }));
  DictionaryReader<uint64_t> one_by_one(bytes.span(), width, &dictionary);
  CHECK(Throws(ErrorKind::kCorruptFile, [&] {
    for (int i = 0; i < 200; ++i) one_by_one.Read(out.data(), 1);
  }));
}

TEST_CASE("an index beyond the dictionary is an error, never an address") {
  Draws draws(10);
  for (int width = 0; width <= 32; ++width) {
    const int64_t num_indices = int64_t{1} << width;
    for (const int64_t size : {int64_t{0}, int64_t{1}, int64_t{5}, int64_t{100},
                               std::min<int64_t>(num_indices - 1, 2000)}) {
      if (size >= num_indices) continue;
      for (const int64_t illegal : {size, (size + num_indices) / 2, num_indices - 1}) {
        for (const bool packed : {false, true}) {
          CheckIllegalIndex(draws, width, size, static_cast<uint32_t>(illegal), packed);
        }
      }
    }
  }
}

TEST_CASE("a dictionary is padded to a power of two") {
  ScratchBuffer memory;
  Dictionary<uint8_t> dictionary(&memory);
  CHECK(dictionary.capacity() == 1);
  for (const auto& [size, capacity] : std::vector<std::pair<int64_t, int64_t>>{
           {0, 1}, {1, 1}, {2, 2}, {3, 4}, {1000, 1024}, {1024, 1024}}) {
    dictionary.Resize(size);
    CHECK(dictionary.num_values() == size);
    CHECK(dictionary.capacity() == capacity);
    CHECK(dictionary.values().size() == static_cast<size_t>(size));
  }
}

}  // namespace
}  // namespace torchparquet::kernels
