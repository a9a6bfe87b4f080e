#pragma once

#include <algorithm>
#include <cstdint>
#include <span>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "base/errors.h"
#include "draws.h"
#include "exact_buffer.h"
#include "kernels/byte_array.h"

namespace torchparquet::testing {

// A kernel that broke its contract.
class Finding : public std::runtime_error {
  using std::runtime_error::runtime_error;
};

inline void Require(bool holds, const char* contract) {
  if (!holds) throw Finding(contract);
}

// Runs `call`; returns whether it said that the file is corrupt, or another error of the
// kind that is expected too.
template <typename Call>
bool Fails(Call&& call, ErrorKind expected = ErrorKind::kCorruptFile) {
  try {
    call();
    return false;
  } catch (const Error& error) {
    Require(error.kind() == ErrorKind::kCorruptFile || error.kind() == expected,
            "an error of an unexpected kind");
    Require(std::string(error.what()) == Printable(error.what()),
            "an unprintable message");
    return true;
  }
}

// Adapts readers of values of one size: what Values are is the reader's to say.
template <typename Reader, typename T>
struct FixedValues {
  using Value = T;
  static std::vector<T> Read(Reader& reader, int64_t num_values) {
    ExactBuffer<T> out(static_cast<size_t>(num_values));
    reader.Read(out.data(), num_values);
    return out.Copy();
  }
};

struct ByteArrayValues {
  using Value = std::string;
  static std::vector<std::string> Read(kernels::ByteArrayReader& reader,
                                       int64_t num_values) {
    ExactBuffer<uint32_t> lengths(static_cast<size_t>(num_values));
    kernels::ByteSink sink;
    reader.Read(num_values, lengths.data(), &sink);
    std::vector<std::string> values;
    auto next = sink.bytes().begin();
    for (const uint32_t length : lengths.span()) {
      Require(length <= static_cast<size_t>(sink.bytes().end() - next),
              "lengths beyond the sink's bytes");
      values.emplace_back(next, next + length);
      next += length;
    }
    Require(next == sink.bytes().end(), "bytes in the sink that no length tells of");
    return values;
  }
};

// Reads up to `num_values` values one by one, as far as that goes.
template <typename Values, typename Reader>
std::vector<typename Values::Value> ReadOneByOne(Reader& reader, int64_t num_values,
                                                 bool* ends) {
  std::vector<typename Values::Value> values;
  *ends = Fails([&] {
    while (static_cast<int64_t>(values.size()) < num_values) {
      values.push_back(Values::Read(reader, 1).front());
    }
  });
  return values;
}

// Reads up to `num_values` values of `bytes` one by one, in random steps with some
// skipped, and once more where the bytes are cut, by readers that `open` returns. All
// must deliver the same values; a step fails if, and only if, it reads what could not be
// read one by one, though one that skips it may too. Returns whether the reader refused
// anything.
template <typename Values, typename Open>
bool CheckSteps(Draws& draws, int64_t num_values, const std::vector<uint8_t>& bytes,
                Open&& open) {
  ExactBuffer<uint8_t> whole(bytes);
  decltype(open(whole.span())) one_by_one;
  decltype(open(whole.span())) in_steps;
  const auto open_both = [&] {
    one_by_one = open(whole.span());
    in_steps = open(whole.span());
  };
  if (Fails(open_both)) return true;
  bool ends = false;
  const auto values = ReadOneByOne<Values>(*one_by_one, num_values, &ends);
  const auto num_read = static_cast<int64_t>(values.size());
  int64_t position = 0;
  int64_t count = 0;
  const bool fails = Fails([&] {
    for (; position < num_values; position += count) {
      count = draws.Between(
          0, std::min<int64_t>(num_values - position, draws.OneIn(3) ? num_values : 20));
      if (draws.OneIn(3)) {
        in_steps->Skip(count);
        continue;
      }
      const auto step = Values::Read(*in_steps, count);
      Require(!ends || num_read < position || position + count <= num_read,
              "values that cannot be read one by one");
      const int64_t end = std::min(position + count, num_read);
      Require(end <= position || std::equal(step.begin(), step.begin() + (end - position),
                                            values.begin() + position),
              "other values in other steps");
    }
  });
  Require(!fails || (ends && position + count > num_read),
          "an error that one step after the other does not raise");

  const auto num_left = draws.Below(static_cast<int64_t>(bytes.size()) + 1);
  ExactBuffer<uint8_t> cut(whole.span().first(static_cast<size_t>(num_left)));
  Fails([&] {
    auto reader = open(cut.span());
    bool cut_ends = false;
    const auto fewer = ReadOneByOne<Values>(*reader, num_values, &cut_ends);
    Require(fewer.size() <= values.size() &&
                std::equal(fewer.begin(), fewer.end(), values.begin()),
            "other values where the bytes are cut");
  });
  return ends || fails;
}

}  // namespace torchparquet::testing
