#include "kernels/values/transform.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <utility>

#include "base/errors.h"
#include "kernels/xxhash64.h"

namespace torchparquet::kernels {
namespace {

template <typename Function>
void ForFloats(std::span<uint64_t> words, Function function) {
  for (uint64_t& word : words) {
    word = std::bit_cast<uint64_t>(function(std::bit_cast<double>(word)));
  }
}

// std::log1p is right to the last bit, but takes 22 ns instead of 5 with glibc 2.36. What
// the sum rounds away is given back, so this is right to the last but one.
double Log1p(double value) {
  const double sum = 1 + value;
  if (sum == 1) return value;
  const bool is_usual = sum > 0 && sum < std::numeric_limits<double>::infinity();
  return is_usual ? std::log(sum) - (sum - 1 - value) / sum : std::log1p(value);
}

void ApplyStep(const Transform::Step& step, std::span<uint64_t> words) {
  using Kind = Transform::Step::Kind;
  switch (step.kind) {
    case Kind::kClip:
      // NaN is neither below nor above.
      return ForFloats(words, [&](double value) {
        return value < step.first    ? step.first
               : value > step.second ? step.second
                                     : value;
      });
    case Kind::kLog1p:
      return ForFloats(words, Log1p);
    case Kind::kScale:
      return ForFloats(words,
                       [&](double value) { return (value - step.first) / step.second; });
  }
}

// The number of borders at the front for which `is_below` holds. NaN is above all.
template <typename IsBelow>
uint64_t CountBelow(const std::vector<double>& borders, IsBelow is_below) {
  return static_cast<uint64_t>(std::ranges::partition_point(borders, is_below) -
                               borders.begin());
}

}  // namespace

Transform::Transform(Parts parts) : parts_(std::move(parts)) {
  if (parts_.num_buckets < 0 ||
      (is_hash() && (!parts_.steps.empty() || parts_.borders))) {
    throw InvalidArgument("a hash takes values as they are stored");
  }
}

int64_t Transform::BucketOf(std::span<const uint8_t> bytes) const {
  return static_cast<int64_t>(XxHash64(bytes, parts_.seed) %
                              static_cast<uint64_t>(parts_.num_buckets));
}

void Transform::Apply(std::span<uint64_t> words) const {
  if (is_hash()) {
    for (uint64_t& word : words) {
      std::array<uint8_t, sizeof(word)> bytes;
      std::memcpy(bytes.data(), &word, sizeof(word));
      word = static_cast<uint64_t>(BucketOf(bytes));
    }
    return;
  }
  for (const Step& step : parts_.steps) ApplyStep(step, words);
  if (!parts_.borders) return;
  const std::vector<double>& borders = *parts_.borders;
  for (uint64_t& word : words) {
    const auto value = std::bit_cast<double>(word);
    // Negated, so that NaN counts all borders.
    word = parts_.counts_equal
               ? CountBelow(borders, [&](double one) { return !(one > value); })
               : CountBelow(borders, [&](double one) { return !(one >= value); });
  }
}

}  // namespace torchparquet::kernels
