#include "kernels/packing/boundaries.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <vector>

#include "draws.h"
#include "exact_buffer.h"

namespace torchparquet::kernels {
namespace {

using testing::Draws;
using testing::ExactBuffer;

TEST_CASE("documents, places in them and lengths are those that marks tell, one by one") {
  Draws draws(311);
  for (int trial = 0; trial < 300; ++trial) {
    const int64_t length = draws.Between(1, draws.OneIn(2) ? 5 : 70);
    const int64_t num_sequences = draws.Between(0, 4);
    const int64_t one_in = draws.Between(1, 30);
    std::vector<uint8_t> marks;
    std::vector<int32_t> document;
    std::vector<int32_t> position;
    std::vector<int32_t> lengths;
    for (int64_t sequence = 0; sequence < num_sequences; ++sequence) {
      const int64_t num_tokens = draws.Between(1, length);
      int32_t number = -1;
      int32_t place = 0;
      bool is_padded = false;  // the rest of the document
      for (int64_t i = 0; i < length; ++i) {
        const bool is_first =
            i == 0 || i == num_tokens || (i < num_tokens && draws.OneIn(one_in));
        is_padded = !is_first && (is_padded || draws.OneIn(10));
        const bool is_token = i < num_tokens && !is_padded;
        if (is_first) {
          lengths.push_back(static_cast<int32_t>(marks.size()));
          number += is_token;
          place = 0;
        }
        marks.push_back(static_cast<uint8_t>(is_token * kIsToken | is_first * kIsFirst));
        document.push_back(is_token ? number : -1);
        position.push_back(place++);
      }
    }
    lengths.push_back(static_cast<int32_t>(marks.size()));
    ExactBuffer<uint8_t> exact(marks.size());
    std::ranges::copy(marks, exact.data());
    const TokenMarks tokens{.marks = exact.span(), .length = length};
    std::vector<int32_t> found_document(marks.size());
    std::vector<int32_t> found_position(marks.size());
    WriteDocuments(tokens, found_document.data(), found_position.data());
    CHECK(found_document == document);
    CHECK(found_position == position);
    CHECK(CumulativeLengths(tokens) == lengths);
  }
}

}  // namespace
}  // namespace torchparquet::kernels
