#pragma once

#include <cstdint>
#include <span>

#include "base/scratch_buffer.h"
#include "kernels/encodings/dictionary_groups.h"
#include "kernels/item_types.h"
#include "kernels/levels/rle_bit_packed.h"
#include "kernels/levels/selected.h"

namespace torchparquet::kernels {

// The values of a dictionary page, padded to a power of two, so every index of a fitting
// bit width is a legal address. A read checks once that all of its indices are within the
// dictionary. T is the bit pattern of the output type: uint8_t, uint16_t, uint32_t or
// uint64_t.
template <typename T>
class Dictionary {
 public:
  // Keeps the entries in `memory`, which must outlive the dictionary. Later dictionaries
  // may reuse it, so nothing is allocated or zeroed again.
  explicit Dictionary(ScratchBuffer* memory) : memory_(memory) { Resize(0); }

  // Makes room for `num_values` values, which the caller writes through values().
  void Resize(int64_t num_values);

  std::span<T> values() { return {entries_, static_cast<size_t>(num_values_)}; }
  const T* data() const { return entries_; }
  int64_t num_values() const { return num_values_; }
  // Number of addressable entries: a power of two, at least 1 and num_values().
  int64_t capacity() const { return capacity_; }

 private:
  ScratchBuffer* memory_;
  T* entries_ = nullptr;
  int64_t num_values_ = 0;
  int64_t capacity_ = 0;
};

// Decodes the dictionary indices of one page straight to values.
template <typename T>
class DictionaryReader {
 public:
  // `bytes` holds the runs (after the bit-width byte). Both must outlive the reader.
  DictionaryReader(std::span<const uint8_t> bytes, int bit_width,
                   const Dictionary<T>* dictionary);

  // Writes the next `num_values` values. Throws Error(kCorruptFile) if the page holds
  // fewer, or for an index beyond the dictionary.
  void Read(T* out, int64_t num_values, Stores stores = Stores::kCached);
  void Skip(int64_t num_values);
  // Passes over end - begin values and writes those whose bit is set: `begin` is the next
  // value's. Throws as Read does, but looks at no other index.
  void PickOnes(T* out, const BitWord* bits, int64_t begin, int64_t end);

 private:
  // These take values of packed runs.
  void ReadPacked(const RunPart& part, Stores stores, T* out) const;
  int64_t ReadWithinGroup(const RunPart& part, T* out) const;
  int64_t ReadWholeGroups(const RunPart& part, Stores stores, T* out) const;
  T* PickFromPacked(const RunPart& part, const BitWord* bits, int64_t begin,
                    T* out) const;
  void CheckIndex(uint32_t index) const;

  RunCursor runs_;
  const Dictionary<T>* dictionary_;
  DecodeGroupsFunction<T> decode_groups_;
  DecodeGroupsFunction<T> decode_streaming_;  // or null
};

#define TORCHPARQUET_DECLARE(T)        \
  extern template class Dictionary<T>; \
  extern template class DictionaryReader<T>;
TORCHPARQUET_FOR_ITEM_TYPES(TORCHPARQUET_DECLARE)
#undef TORCHPARQUET_DECLARE

}  // namespace torchparquet::kernels
