#include "reader/plan/selections.h"

#include <string>

#include "base/errors.h"

namespace torchparquet {

Selections::Selections(const Arrays& arrays) : arrays_(arrays) {
  const size_t count = arrays.form.size();
  bool fits = arrays.begin.size() == count + 1 && arrays.num_rows.size() == count &&
              arrays.begin.front() == 0 &&
              arrays.begin.back() == std::ssize(arrays.words);
  for (size_t i = 0; fits && i < count; ++i) {
    fits = arrays.begin[i] <= arrays.begin[i + 1] &&
           arrays.form[i] <= static_cast<uint8_t>(Form::kBits);
  }
  if (!fits) {
    throw InvalidArgument("the arrays of selected rows contradict each other");
  }
}

std::span<const uint64_t> Selections::WordsOf(size_t row_group) const {
  const auto begin = static_cast<size_t>(arrays_.begin[row_group]);
  return arrays_.words.subspan(begin,
                               static_cast<size_t>(arrays_.begin[row_group + 1]) - begin);
}

RowSelection Selections::Made(size_t row_group) const {
  const std::span<const uint64_t> words = WordsOf(row_group);
  if (arrays_.form[row_group] == static_cast<uint8_t>(Form::kBits)) {
    return RowSelection::OfBits(words);
  }
  return RowSelection::OfRuns(words);
}

std::shared_ptr<const RowSelection> Selections::Of(int64_t row_group) const {
  const auto number = static_cast<size_t>(row_group);
  if (arrays_.form[number] == static_cast<uint8_t>(Form::kAll)) return nullptr;
  auto made = std::make_shared<const RowSelection>(Made(number));
  if (made->num_rows() != num_rows(row_group)) {
    throw InvalidArgument(
        "a row group has another number of selected rows than was planned: " +
        std::to_string(made->num_rows()) + ", " + std::to_string(num_rows(row_group)));
  }
  return made;
}

}  // namespace torchparquet
