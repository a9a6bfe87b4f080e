#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "columns/values/page_values.h"
#include "kernels/values/transform.h"
#include "pages/decode_scratch.h"

namespace torchparquet {

// Numbers strings. Immutable, so shared by all threads.
class Vocabulary {
 public:
  // The code of a string is its place in `words`; all other strings have `unknown_code`.
  // Throws Error(kInvalidArgument) for a repeated word.
  Vocabulary(std::vector<std::string> words, int64_t unknown_code);
  // The code of a string is its bucket by a hash.
  explicit Vocabulary(std::shared_ptr<const kernels::Transform> hash)
      : hash_(std::move(hash)) {}
  Vocabulary(const Vocabulary&) = delete;
  Vocabulary& operator=(const Vocabulary&) = delete;

  int64_t CodeOf(std::string_view word) const {
    if (hash_ != nullptr) {
      return hash_->BucketOf(
          {reinterpret_cast<const uint8_t*>(word.data()), word.size()});
    }
    const auto found = codes_.find(word);
    return found == codes_.end() ? unknown_code_ : found->second;
  }

 private:
  const std::shared_ptr<const kernels::Transform> hash_;
  const std::vector<std::string> words_;
  const int64_t unknown_code_ = 0;
  std::unordered_map<std::string_view, int64_t> codes_;  // views into words_
};

// The codes of a column chunk's strings. Dictionary values are looked up once per column
// chunk, and no string object is made. Codes must fit Out. Strings that share a prefix
// may be far longer than their page, so strings that are looked up together take at most
// `max_bytes`.
template <typename Out>
std::unique_ptr<PageValues<Out>> MakeCodeValues(
    std::shared_ptr<const Vocabulary> vocabulary, int64_t max_bytes,
    ColumnBuffers* buffers);

}  // namespace torchparquet
