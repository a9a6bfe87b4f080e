#pragma once

#include <array>
#include <cstdint>

namespace torchparquet::kernels {

// A permutation of [0, n) that takes no memory: the position of any row, and the row at
// any position, follow from the key alone. A generalised Feistel cipher over [0, a * b),
// a and b about the root of n, whose results of n and more are put in again until one is
// less.
// Sources: Black and Rogaway, "Ciphers with Arbitrary Finite Domains", 2002; the round
// keys are SplitMix64's (Steele, Lea and Flood, "Fast Splittable Pseudorandom Number
// Generators", 2014), the rounds the hash "lowbias32" by C. Wellons.
// Immutable, so safe to share among threads.
class Permutation {
 public:
  // Throws Error(kInvalidArgument) unless 1 <= n <= 2^32.
  Permutation(uint64_t key, int64_t n);

  // Writes the positions of the rows [first, first + count).
  void Positions(int64_t first, int64_t count, uint32_t* out) const;
  // Writes the rows at the positions [first, first + count).
  void Rows(int64_t first, int64_t count, uint32_t* out) const;

  int64_t size() const { return static_cast<int64_t>(n_); }

  // As Positions and Rows, by the variant for every processor. To be tested against.
  void PlainPositions(int64_t first, int64_t count, uint32_t* out) const;
  void PlainRows(int64_t first, int64_t count, uint32_t* out) const;

  static constexpr int kNumRounds = 6;

 private:
  uint64_t n_;
  uint32_t a_;
  uint32_t b_;
  std::array<uint32_t, kNumRounds> keys_;
};

}  // namespace torchparquet::kernels
