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

constexpr const char* kTooFew = "page holds fewer values than its header says";

Error IndexBeyondDictionary(int64_t num_values) {
  return CorruptFile("dictionary index is beyond the dictionary of ", num_values,
                     " values");
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
void DictionaryReader<T>::CheckIndex(uint32_t index) const {
  if (index >= dictionary_->num_values()) {
    throw IndexBeyondDictionary(dictionary_->num_values());
  }
}

template <typename T>
void DictionaryReader<T>::Read(T* out, int64_t num_values, Stores stores) {
  runs_.Take(num_values, kTooFew, [&](const RunPart& part) {
    if (part.run.packed) {
      ReadPacked(part, stores, out);
    } else {
      CheckIndex(part.run.value);
      const T value = dictionary_->data()[part.run.value];
      std::fill_n(out, part.count, value);
    }
    out += part.count;
  });
}

template <typename T>
void DictionaryReader<T>::Skip(int64_t num_values) {
  runs_.Take(num_values, kTooFew, [](const RunPart&) {});
}

template <typename T>
void DictionaryReader<T>::PickOnes(T* out, const BitWord* bits, int64_t begin,
                                   int64_t end) {
  runs_.Take(end - begin, kTooFew, [&](const RunPart& part) {
    if (part.run.packed) {
      out = PickFromPacked(part, bits, begin, out);
    } else if (const int64_t num_ones = CountOnes(bits, begin, begin + part.count)) {
      CheckIndex(part.run.value);
      out = std::fill_n(out, num_ones, dictionary_->data()[part.run.value]);
    }
    begin += part.count;
  });
}

// Takes indices out of the packed bits one by one. Loads that would leave the page are
// made from a copy of its end.
template <typename T>
T* DictionaryReader<T>::PickFromPacked(const RunPart& part, const BitWord* bits,
                                       int64_t begin, T* out) const {
  const int width = runs_.bit_width();
  const uint64_t mask = (uint64_t{1} << width) - 1;
  const uint8_t* data = part.run.bytes.data();
  const int64_t num_bytes = part.run.readable_end - data;
  constexpr int64_t kLoadBytes = sizeof(uint64_t);
  const auto load = [&](int64_t offset) {
    if (offset + kLoadBytes <= num_bytes) return Load64Bits(data + offset);
    std::array<uint8_t, kLoadBytes> padded{};
    const int64_t left = num_bytes - offset;
    if (left > 0) std::memcpy(padded.data(), data + offset, static_cast<size_t>(left));
    return Load64Bits(padded.data());
  };
  ForOnes(bits, begin, begin + part.count, [&](int64_t one) {
    const int64_t bit = (part.begin + one - begin) * width;
    const auto index = static_cast<uint32_t>(load(bit / 8) >> (bit % 8) & mask);
    CheckIndex(index);
    *out++ = dictionary_->data()[index];
  });
  return out;
}

template <typename T>
void DictionaryReader<T>::ReadPacked(const RunPart& part, Stores stores, T* out) const {
  for (int64_t done = 0; done < part.count;) {
    const RunPart rest{part.run, part.begin + done, part.count - done};
    int64_t count = ReadWholeGroups(rest, stores, out + done);
    if (count == 0) count = ReadWithinGroup(rest, out + done);
    done += count;
  }
}

// Decodes values of the first group from a padded copy: it may stand at the very end of
// the page. Returns the number of values written.
template <typename T>
int64_t DictionaryReader<T>::ReadWithinGroup(const RunPart& part, T* out) const {
  const int width = runs_.bit_width();
  std::array<uint8_t, GroupReadableBytes(32)> padded{};
  const auto start = static_cast<size_t>(part.begin / kGroupValues * width);
  const size_t num_bytes =
      std::min<size_t>(static_cast<size_t>(width), part.run.bytes.size() - start);
  if (num_bytes > 0) std::memcpy(padded.data(), part.run.bytes.data() + start, num_bytes);
  std::array<uint32_t, kGroupValues> indices;
  UnpackGroup(padded.data(), width, indices.data());
  const int64_t first = part.begin % kGroupValues;
  const int64_t count = std::min(part.count, kGroupValues - first);
  for (int64_t i = 0; i < count; ++i) {
    const uint32_t index = indices[static_cast<size_t>(first + i)];
    CheckIndex(index);
    out[i] = dictionary_->data()[index];
  }
  return count;
}

// Decodes whole groups, if the part begins with one, as far as loads stay within the
// page. Returns the number of values written.
template <typename T>
int64_t DictionaryReader<T>::ReadWholeGroups(const RunPart& part, Stores stores,
                                             T* out) const {
  int64_t num_groups = part.count / kGroupValues;
  if (part.begin % kGroupValues != 0 || num_groups == 0) return 0;
  const int width = runs_.bit_width();
  if (int64_t{1} << width > dictionary_->capacity()) return 0;
  const uint8_t* start = part.run.bytes.data() + part.begin / kGroupValues * width;
  const int64_t readable = part.run.readable_end - start - GroupReadableBytes(width);
  if (readable < 0) return 0;
  if (width > 0) num_groups = std::min(num_groups, readable / width + 1);
  const bool streaming = stores == Stores::kStreaming && decode_streaming_ != nullptr &&
                         reinterpret_cast<uintptr_t>(out) % kStreamingAlignment == 0;
  const auto decode = streaming ? decode_streaming_ : decode_groups_;
  const bool beyond =
      decode(start, num_groups, dictionary_->data(), dictionary_->num_values() - 1, out);
  if (beyond) throw IndexBeyondDictionary(dictionary_->num_values());
  return num_groups * kGroupValues;
}

#define TORCHPARQUET_INSTANTIATE(T) \
  template class Dictionary<T>;     \
  template class DictionaryReader<T>;
TORCHPARQUET_FOR_ITEM_TYPES(TORCHPARQUET_INSTANTIATE)
#undef TORCHPARQUET_INSTANTIATE

}  // namespace torchparquet::kernels
