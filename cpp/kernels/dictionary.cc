#include "kernels/dictionary.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>
#include <string>
#include <utility>

#include "errors.h"
#include "kernels/bit_unpack.h"

namespace torchparquet::kernels {
namespace {

constexpr int kNumWidths = 33;

Error IndexBeyondDictionary(int64_t num_values) {
  return CorruptFile("dictionary index is beyond the dictionary of " +
                     std::to_string(num_values) + " values");
}

// Decodes `num_groups` groups and returns whether an index exceeded `limit`, the
// last legal one. Every index of kWidth bits must be addressable in `dictionary`.
// The difference with `limit` goes below zero exactly for an illegal index, so the
// check costs a subtraction and an or per value instead of a branch.
template <typename T, int kWidth>
bool DecodeGroups(const uint8_t* in, int64_t num_groups, const T* dictionary, int64_t limit,
                  T* out) {
  int64_t sign = 0;
  for (int64_t group = 0; group < num_groups; ++group) {
    UnpackGroup<kWidth>(in, [&](int i, uint32_t index) {
      sign |= limit - static_cast<int64_t>(index);
      out[i] = dictionary[index];
    });
    in += kWidth;
    out += kGroupValues;
  }
  return sign < 0;
}

template <typename T>
using DecodeGroupsFunction = bool (*)(const uint8_t*, int64_t, const T*, int64_t, T*);

template <typename T, int... kWidths>
constexpr auto MakeDecodeTable(std::integer_sequence<int, kWidths...>) {
  return std::array<DecodeGroupsFunction<T>, kNumWidths>{&DecodeGroups<T, kWidths>...};
}

template <typename T>
constexpr auto kDecodeTable = MakeDecodeTable<T>(std::make_integer_sequence<int, kNumWidths>());

}  // namespace

template <typename T>
void Dictionary<T>::Resize(int64_t num_values) {
  const auto capacity = std::bit_ceil(static_cast<uint64_t>(std::max<int64_t>(num_values, 1)));
  entries_.resize(capacity);
  num_values_ = num_values;
}

template <typename T>
DictionaryReader<T>::DictionaryReader(std::span<const uint8_t> bytes, int bit_width,
                                      const Dictionary<T>* dictionary)
    : runs_(bytes, bit_width), dictionary_(dictionary) {}

template <typename T>
void DictionaryReader<T>::NextRun() {
  if (!runs_.Next(&run_)) throw CorruptFile("page holds fewer values than its header says");
  run_position_ = 0;
}

template <typename T>
void DictionaryReader<T>::CheckIndex(uint32_t index) const {
  if (index >= dictionary_->num_values()) {
    throw IndexBeyondDictionary(dictionary_->num_values());
  }
}

template <typename T>
void DictionaryReader<T>::Read(T* out, int64_t num_values) {
  while (num_values > 0) {
    if (run_position_ == run_.num_values) {
      NextRun();
      continue;
    }
    const int64_t count = std::min(num_values, run_.num_values - run_position_);
    if (run_.packed) {
      ReadPacked(out, count);
    } else {
      CheckIndex(run_.value);
      std::fill_n(out, count, dictionary_->data()[run_.value]);
      run_position_ += count;
    }
    out += count;
    num_values -= count;
  }
}

template <typename T>
void DictionaryReader<T>::Skip(int64_t num_values) {
  while (num_values > 0) {
    if (run_position_ == run_.num_values) {
      NextRun();
      continue;
    }
    const int64_t count = std::min(num_values, run_.num_values - run_position_);
    run_position_ += count;
    num_values -= count;
  }
}

template <typename T>
void DictionaryReader<T>::ReadPacked(T* out, int64_t num_values) {
  while (num_values > 0) {
    int64_t count;
    if (run_position_ % kGroupValues != 0 || num_values < kGroupValues) {
      count = std::min(num_values, kGroupValues - run_position_ % kGroupValues);
      ReadWithinGroup(out, count);
    } else {
      count = ReadWholeGroups(out, num_values / kGroupValues);
      if (count == 0) {
        count = kGroupValues;
        ReadWithinGroup(out, count);
      }
    }
    out += count;
    num_values -= count;
  }
}

// Decodes values of one group by way of a padded copy, so that it may stand at the
// very end of the page.
template <typename T>
void DictionaryReader<T>::ReadWithinGroup(T* out, int64_t num_values) {
  const int width = runs_.bit_width();
  std::array<uint8_t, GroupReadableBytes(32)> padded{};
  const auto start = static_cast<size_t>(run_position_ / kGroupValues * width);
  const size_t num_bytes = std::min<size_t>(static_cast<size_t>(width), run_.bytes.size() - start);
  if (num_bytes > 0) std::memcpy(padded.data(), run_.bytes.data() + start, num_bytes);
  std::array<uint32_t, kGroupValues> indices;
  UnpackGroup(padded.data(), width, indices.data());
  for (int64_t i = 0; i < num_values; ++i) {
    const uint32_t index = indices[static_cast<size_t>(run_position_ % kGroupValues + i)];
    CheckIndex(index);
    out[i] = dictionary_->data()[index];
  }
  run_position_ += num_values;
}

// Decodes as many whole groups as can be loaded from without reading past the run,
// at most `num_groups`. Returns the number of values written.
template <typename T>
int64_t DictionaryReader<T>::ReadWholeGroups(T* out, int64_t num_groups) {
  const int width = runs_.bit_width();
  if (int64_t{1} << width > dictionary_->capacity()) return 0;
  const int64_t start = run_position_ / kGroupValues * width;
  const int64_t readable =
      static_cast<int64_t>(run_.bytes.size()) - start - GroupReadableBytes(width);
  if (readable < 0) return 0;
  if (width > 0) num_groups = std::min(num_groups, readable / width + 1);
  const auto decode = kDecodeTable<T>[static_cast<size_t>(width)];
  const bool beyond = decode(run_.bytes.data() + start, num_groups, dictionary_->data(),
                             dictionary_->num_values() - 1, out);
  if (beyond) throw IndexBeyondDictionary(dictionary_->num_values());
  run_position_ += num_groups * kGroupValues;
  return num_groups * kGroupValues;
}

template class Dictionary<uint8_t>;
template class Dictionary<uint16_t>;
template class Dictionary<uint32_t>;
template class Dictionary<uint64_t>;
template class DictionaryReader<uint8_t>;
template class DictionaryReader<uint16_t>;
template class DictionaryReader<uint32_t>;
template class DictionaryReader<uint64_t>;

}  // namespace torchparquet::kernels
