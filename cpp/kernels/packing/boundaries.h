#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace torchparquet::kernels {

// The bits of a token's mark in packed sequences.
enum TokenMark : uint8_t {
  kIsToken = 1,  // of a document; else padding, also that which ends a document
  kIsFirst = 2,  // of a document, or of the part that the sequence has; or of the padding
};

// Marks of the tokens of sequences of one length, one after the other. The first token of
// a sequence has kIsFirst.
struct TokenMarks {
  std::span<const uint8_t> marks;
  int64_t length = 1;  // of a sequence
};

// Writes for each token the number of its document within its sequence, -1 for padding,
// and its place in that document, with the padding that ends it, or in other padding.
void WriteDocuments(const TokenMarks& tokens, int32_t* document, int32_t* position);

// The places at which documents and paddings begin among all tokens, and the end.
std::vector<int32_t> CumulativeLengths(const TokenMarks& tokens);

}  // namespace torchparquet::kernels
