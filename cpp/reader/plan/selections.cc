#include "reader/plan/selections.h"

#include <array>
#include <bit>
#include <cstddef>
#include <limits>
#include <string>
#include <utility>

#include "base/errors.h"

namespace torchparquet {
namespace {

[[noreturn]] void FailToDecode() {
  throw InvalidArgument("the runs of selected rows cannot be decoded");
}

class Varints {
 public:
  explicit Varints(std::span<const uint64_t> words) : bytes_(std::as_bytes(words)) {}

  uint64_t Next() {
    uint64_t number = 0;
    for (int shift = 0; shift < kMostBits; shift += 7, ++at_) {
      if (at_ == bytes_.size()) FailToDecode();
      const auto byte = std::to_integer<uint64_t>(bytes_[at_]);
      number |= (byte & 0x7F) << shift;
      if (byte < 0x80) return ++at_, number;
    }
    FailToDecode();
  }
  size_t num_left() const { return bytes_.size() - at_; }

 private:
  static constexpr int kMostBits = 35;  // twice the rows of a row group, and 1

  const std::span<const std::byte> bytes_;
  size_t at_ = 0;
};

// A selection with the runs that it views.
struct HeldRuns {
  explicit HeldRuns(std::vector<uint64_t> made)
      : runs(std::move(made)), selection(RowSelection::OfRuns(runs)) {}

  const std::vector<uint64_t> runs;
  const RowSelection selection;
};

}  // namespace

std::vector<uint64_t> Runs(std::span<const uint64_t> words) {
  Varints heads(words);
  const uint64_t num_runs = heads.Next();
  if (num_runs > heads.num_left()) FailToDecode();
  Varints lengths = heads;
  for (uint64_t i = 0; i < num_runs; ++i) lengths.Next();
  std::vector<uint64_t> runs(num_runs);
  uint64_t row = 0;
  for (uint64_t& run : runs) {
    const uint64_t head = heads.Next();
    const uint64_t begin = row + head / 2;
    row = begin + (head % 2 == 0 ? 1 : lengths.Next() + 2);
    if (row > std::numeric_limits<uint32_t>::max()) FailToDecode();
    run = std::bit_cast<uint64_t>(std::array<uint32_t, 2>{static_cast<uint32_t>(begin),
                                                          static_cast<uint32_t>(row)});
  }
  return runs;
}

Selections::Selections(const Arrays& arrays) : arrays_(arrays) {
  const size_t count = arrays.form.size();
  bool fits = arrays.begin.size() == count + 1 && arrays.num_rows.size() == count &&
              arrays.begin.front() == 0 &&
              arrays.begin.back() == std::ssize(arrays.words);
  for (size_t i = 0; fits && i < count; ++i) {
    fits = arrays.begin[i] <= arrays.begin[i + 1] &&
           arrays.form[i] <= static_cast<uint8_t>(Form::kBits);
  }
  if (!fits) throw InvalidArgument("the arrays of selected rows contradict each other");
}

std::span<const uint64_t> Selections::WordsOf(size_t row_group) const {
  const auto begin = static_cast<size_t>(arrays_.begin[row_group]);
  return arrays_.words.subspan(begin,
                               static_cast<size_t>(arrays_.begin[row_group + 1]) - begin);
}

std::shared_ptr<const RowSelection> Selections::Of(int64_t row_group) const {
  const auto number = static_cast<size_t>(row_group);
  if (arrays_.form[number] == static_cast<uint8_t>(Form::kAll)) return nullptr;
  const std::span<const uint64_t> words = WordsOf(number);
  std::shared_ptr<const RowSelection> made;
  if (arrays_.form[number] == static_cast<uint8_t>(Form::kBits)) {
    made = std::make_shared<const RowSelection>(RowSelection::OfBits(words));
  } else {
    const auto held = std::make_shared<const HeldRuns>(Runs(words));
    made = {held, &held->selection};
  }
  if (made->num_rows() != num_rows(row_group)) {
    throw InvalidArgument(
        "a row group has another number of selected rows than was planned: ",
        made->num_rows(), ", ", num_rows(row_group));
  }
  return made;
}

}  // namespace torchparquet
