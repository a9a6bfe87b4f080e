#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>

#include "kernels/packing/boundaries.h"
#include "kernels/packing/packer.h"

namespace torchparquet::kernels {

// The tokens beside those of documents. Out is the bit pattern of a token.
template <typename Out>
struct TokensBeside {
  Out separator{};
  Out padding{};
};

// Writes the tokens of a sequence, and their marks unless `marks` is null.
// `copy(part.begin, part.num_values, out)` copies the values of a part.
template <typename Out, typename CopyValues>
void WriteSequence(std::span<const PackedPart> parts, const Packing& packing,
                   TokensBeside<Out> beside, CopyValues copy, Out* values,
                   uint8_t* marks) {
  int64_t at = 0;
  for (const PackedPart& part : parts) {
    copy(part.begin, part.num_values, values + at);
    if (marks != nullptr) {
      std::memset(marks + at, kIsToken, static_cast<size_t>(part.num_tokens()));
      marks[at] |= kIsFirst;
    }
    const int64_t padded_end = at + packing.Padded(part.num_tokens());
    at += part.num_values;
    if (part.has_separator) values[at++] = beside.separator;
    std::fill(values + at, values + padded_end, beside.padding);
    if (marks != nullptr) {
      std::memset(marks + at, 0, static_cast<size_t>(padded_end - at));
    }
    at = padded_end;
  }
  std::fill(values + at, values + packing.length, beside.padding);
  if (marks != nullptr && at < packing.length) {
    std::memset(marks + at, 0, static_cast<size_t>(packing.length - at));
    marks[at] = kIsFirst;
  }
}

}  // namespace torchparquet::kernels
