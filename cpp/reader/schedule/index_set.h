#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <vector>

namespace torchparquet {

// A set of numbers from 0 to `size`, that one excluded. Looking for the next one passes
// 64 that are missing at a time.
class IndexSet {
 public:
  // Holds all of them.
  explicit IndexSet(int64_t size)
      : size_(size), words_(static_cast<size_t>(size / 64 + 1)) {
    for (int64_t index = 0; index < size; ++index) Add(index);
  }

  void Add(int64_t index) { Word(index) |= Bit(index); }
  void Remove(int64_t index) { Word(index) &= ~Bit(index); }
  // Returns the least one from `index` on, or the size if there is none.
  int64_t NextFrom(int64_t index) const {
    auto at = static_cast<size_t>(index / 64);
    uint64_t word = words_[at] & (~uint64_t{0} << (index % 64));
    while (word == 0) {
      if (++at == words_.size()) return size_;
      word = words_[at];
    }
    return static_cast<int64_t>(at) * 64 + std::countr_zero(word);
  }
  bool is_empty() const { return NextFrom(0) == size_; }

 private:
  uint64_t& Word(int64_t index) { return words_[static_cast<size_t>(index / 64)]; }
  static uint64_t Bit(int64_t index) { return uint64_t{1} << (index % 64); }

  int64_t size_;
  std::vector<uint64_t> words_;
};

}  // namespace torchparquet
