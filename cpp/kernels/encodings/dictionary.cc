#include "kernels/encodings/dictionary.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>
#include <string>

#include "base/errors.h"
#include "kernels/bit_unpack.h"

namespace torchparquet::kernels {
namespace {

Error IndexBeyondDictionary(int64_t num_values) {
  return CorruptFile("dictionary index is beyond the dictionary of " +
                     std::to_string(num_values) + " values");
}

}  // namespace

template <typename T>
void Dictionary<T>::Resize(int64_t num_values) {
  capacity_ = static_cast<int64_t>(
      std::bit_ceil(static_cast<uint64_t>(std::max<int64_t>(num_values, 1))));
  entries_ = memory_->ReserveItems<T>(capacity_);
  num_values_ = num_values;
  std::fill(entries_ + num_values, entries_ + capacity_, T{0});
}

template <typename T>
DictionaryReader<T>::DictionaryReader(std::span<const uint8_t> bytes, int bit_width,
                                      const Dictionary<T>* dictionary)
    : runs_(bytes, bit_width),
      dictionary_(dictionary),
      decode_groups_(ChooseDecodeGroups<T>(bit_width)),
      decode_streaming_(ChooseDecodeGroupsStreaming<T>(bit_width)) {}

template <typename T>
void DictionaryReader<T>::NextRun() {
  if (!runs_.Next(&run_))
    throw CorruptFile("page holds fewer values than its header says");
  run_position_ = 0;
}

template <typename T>
void DictionaryReader<T>::CheckIndex(uint32_t index) const {
  if (index >= dictionary_->num_values()) {
    throw IndexBeyondDictionary(dictionary_->num_values());
  }
}

template <typename T>
void DictionaryReader<T>::Read(T* out, int64_t num_values, Stores stores) {
  while (num_values > 0) {
    if (run_position_ == run_.num_values) {
      NextRun();
      continue;
    }
    const int64_t count = std::min(num_values, run_.num_values - run_position_);
    if (run_.packed) {
      ReadPacked(out, count, stores);
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
void DictionaryReader<T>::PickOnes(T* out, const BitWord* bits, int64_t begin,
                                   int64_t end) {
  while (begin < end) {
    if (run_position_ == run_.num_values) {
      NextRun();
      continue;
    }
    const int64_t count = std::min(end - begin, run_.num_values - run_position_);
    if (run_.packed) {
      out = PickFromPacked(out, bits, begin, begin + count);
    } else if (const int64_t num_ones = CountOnes(bits, begin, begin + count)) {
      CheckIndex(run_.value);
      out = std::fill_n(out, num_ones, dictionary_->data()[run_.value]);
    }
    run_position_ += count;
    begin += count;
  }
}

// Takes indices out of the packed bits one by one. Loads that would leave the page are
// made from a copy of its end.
template <typename T>
T* DictionaryReader<T>::PickFromPacked(T* out, const BitWord* bits, int64_t begin,
                                       int64_t end) {
  const int width = runs_.bit_width();
  const uint64_t mask = (uint64_t{1} << width) - 1;
  const uint8_t* data = run_.bytes.data();
  const int64_t num_bytes = run_.readable_end - data;
  constexpr int64_t kLoadBytes = sizeof(uint64_t);
  const auto load = [&](int64_t offset) {
    if (offset + kLoadBytes <= num_bytes) return LoadWord(data + offset);
    std::array<uint8_t, kLoadBytes> padded{};
    const int64_t left = num_bytes - offset;
    if (left > 0) std::memcpy(padded.data(), data + offset, static_cast<size_t>(left));
    return LoadWord(padded.data());
  };
  ForOnes(bits, begin, end, [&](int64_t one) {
    const int64_t bit = (run_position_ + one - begin) * width;
    const auto index = static_cast<uint32_t>(load(bit / 8) >> (bit % 8) & mask);
    CheckIndex(index);
    *out++ = dictionary_->data()[index];
  });
  return out;
}

template <typename T>
void DictionaryReader<T>::ReadPacked(T* out, int64_t num_values, Stores stores) {
  while (num_values > 0) {
    int64_t count;
    if (run_position_ % kGroupValues != 0 || num_values < kGroupValues) {
      count = std::min(num_values, kGroupValues - run_position_ % kGroupValues);
      ReadWithinGroup(out, count);
    } else {
      count = ReadWholeGroups(out, num_values / kGroupValues, stores);
      if (count == 0) {
        count = kGroupValues;
        ReadWithinGroup(out, count);
      }
    }
    out += count;
    num_values -= count;
  }
}

// Decodes values of one group from a padded copy. The group may stand at the very end of
// the page.
template <typename T>
void DictionaryReader<T>::ReadWithinGroup(T* out, int64_t num_values) {
  const int width = runs_.bit_width();
  std::array<uint8_t, GroupReadableBytes(32)> padded{};
  const auto start = static_cast<size_t>(run_position_ / kGroupValues * width);
  const size_t num_bytes =
      std::min<size_t>(static_cast<size_t>(width), run_.bytes.size() - start);
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

// Decodes whole groups, at most `num_groups`, as far as loads stay within the page.
// Returns the number of values written.
template <typename T>
int64_t DictionaryReader<T>::ReadWholeGroups(T* out, int64_t num_groups, Stores stores) {
  const int width = runs_.bit_width();
  if (int64_t{1} << width > dictionary_->capacity()) return 0;
  const int64_t start = run_position_ / kGroupValues * width;
  const int64_t readable =
      run_.readable_end - run_.bytes.data() - start - GroupReadableBytes(width);
  if (readable < 0) return 0;
  if (width > 0) num_groups = std::min(num_groups, readable / width + 1);
  const bool streaming = stores == Stores::kStreaming && decode_streaming_ != nullptr &&
                         reinterpret_cast<uintptr_t>(out) % kStreamingAlignment == 0;
  const auto decode = streaming ? decode_streaming_ : decode_groups_;
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
