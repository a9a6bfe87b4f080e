#include "kernels/packing/boundaries.h"

#include <algorithm>
#include <cstring>
#include <limits>
#include <numeric>
#include <string>

#include "base/errors.h"

namespace torchparquet::kernels {
namespace {

// Returns the index of the next first token after `begin`, or the number of marks. Takes
// eight marks at a time, since documents are long.
size_t NextFirst(std::span<const uint8_t> marks, size_t begin) {
  constexpr uint64_t kFirstOfEach = 0x0101010101010101 * kIsFirst;
  size_t at = begin + 1;
  for (uint64_t word; at + sizeof(word) <= marks.size(); at += sizeof(word)) {
    std::memcpy(&word, marks.data() + at, sizeof(word));
    if ((word & kFirstOfEach) != 0) break;
  }
  while (at < marks.size() && (marks[at] & kIsFirst) == 0) ++at;
  return at;
}

}  // namespace

void WriteDocuments(const TokenMarks& tokens, int32_t* document, int32_t* position) {
  const auto length = static_cast<size_t>(tokens.length);
  for (size_t begin = 0; begin < tokens.marks.size(); begin += length) {
    const auto sequence = tokens.marks.subspan(begin, length);
    int32_t number = 0;
    for (size_t first = 0; first < sequence.size();) {
      const size_t end = NextFirst(sequence, first);
      const bool is_document = (sequence[first] & kIsToken) != 0;
      size_t tokens_end = end;
      while (tokens_end > first && (sequence[tokens_end - 1] & kIsToken) == 0)
        --tokens_end;
      std::fill(document + first, document + tokens_end, is_document ? number++ : -1);
      std::fill(document + tokens_end, document + end, -1);
      std::iota(position + first, position + end, 0);
      first = end;
    }
    document += sequence.size();
    position += sequence.size();
  }
}

std::vector<int32_t> CumulativeLengths(const TokenMarks& tokens) {
  if (std::ssize(tokens.marks) > std::numeric_limits<int32_t>::max()) {
    throw InvalidArgument("a batch has too many tokens for cumulative lengths of int32: ",
                          tokens.marks.size());
  }
  std::vector<int32_t> lengths;
  for (size_t first = 0; first < tokens.marks.size();) {
    lengths.push_back(static_cast<int32_t>(first));
    first = NextFirst(tokens.marks, first);
  }
  lengths.push_back(static_cast<int32_t>(tokens.marks.size()));
  return lengths;
}

}  // namespace torchparquet::kernels
