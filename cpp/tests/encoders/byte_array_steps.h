#pragma once

#include <doctest/doctest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "caught.h"
#include "draws.h"
#include "exact_buffer.h"
#include "kernels/byte_array.h"

namespace torchparquet::testing {

// The values as PLAIN, apart from Arrow.
inline std::vector<uint8_t> EncodePlain(const std::vector<std::string>& values) {
  std::vector<uint8_t> bytes;
  for (const std::string& value : values) {
    for (int i = 0; i < 4; ++i) {
      bytes.push_back(static_cast<uint8_t>(value.size() >> (8 * i)));
    }
    bytes.insert(bytes.end(), value.begin(), value.end());
  }
  return bytes;
}

// Reads the next `num_values` values.
inline std::vector<std::string> ReadStrings(kernels::ByteArrayReader& reader,
                                            int64_t num_values, kernels::ByteSink* sink) {
  ExactBuffer<uint32_t> lengths(static_cast<size_t>(num_values));
  const size_t before = sink->size();
  reader.Read(num_values, lengths.data(), sink);
  std::vector<std::string> values;
  auto next = sink->bytes().begin() + static_cast<int64_t>(before);
  for (const uint32_t length : lengths.span()) {
    values.emplace_back(next, next + length);
    next += length;
  }
  CHECK(next == sink->bytes().end());
  return values;
}

// Reads and skips in random steps, into one sink that the consumer sometimes empties,
// checks what was read, and that no more values follow.
inline void CheckSteps(Draws& draws, kernels::ByteArrayReader& reader,
                       const std::vector<std::string>& expected) {
  kernels::ByteSink sink;
  auto next = expected.begin();
  while (next != expected.end()) {
    const int64_t count = draws.Between(
        0, std::min<int64_t>(expected.end() - next, draws.OneIn(4) ? 1500 : 20));
    if (draws.OneIn(3)) sink.Clear();
    if (draws.OneIn(3)) {
      reader.Skip(count);
    } else {
      CHECK(ReadStrings(reader, count, &sink) ==
            std::vector<std::string>(next, next + count));
    }
    next += count;
  }
  CHECK(Throws(ErrorKind::kCorruptFile, [&] { reader.Skip(1); }));
  CHECK(Throws(ErrorKind::kCorruptFile, [&] { ReadStrings(reader, 1, &sink); }));
}

// Strings of every shape: empty, short, long, alike, sharing their start.
inline std::vector<std::vector<std::string>> StringShapes(Draws& draws,
                                                          int64_t num_values) {
  std::vector<std::vector<std::string>> shapes;
  const auto add = [&](auto value) {
    std::vector<std::string> values;
    for (int64_t i = 0; i < num_values; ++i) values.push_back(value(i));
    shapes.push_back(values);
  };
  const auto letters = [&](int64_t length) {
    std::string text;
    for (int64_t i = 0; i < length; ++i) text.push_back(static_cast<char>(draws.Bits()));
    return text;
  };
  add([](int64_t) { return std::string(); });
  add([](int64_t) { return std::string("same"); });
  add([](int64_t i) { return "https://example.org/items/" + std::to_string(i); });
  add([&](int64_t) { return letters(draws.Below(40)); });
  add([&](int64_t) { return letters(draws.OneIn(20) ? draws.Below(3000) : 3); });
  add([](int64_t i) { return std::string(static_cast<size_t>(i % 70), 'a'); });
  add([&](int64_t) { return std::string(100, 'p') + letters(draws.Below(3)); });
  return shapes;
}

}  // namespace torchparquet::testing
