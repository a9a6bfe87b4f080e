#include "kernels/values/expand.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cstddef>

#include "kernels/bit_unpack.h"
#include "kernels/instructions.h"
#include "kernels/item_types.h"

#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace torchparquet::kernels {
namespace {

#if defined(__x86_64__)

// By mask of the rows of one register: the dense value for each row. Entries have 32
// bits; a value of 64 bits has two.
template <size_t kRows>
using Places = std::array<std::array<uint32_t, 8>, size_t{1} << kRows>;

template <size_t kRows>
constexpr Places<kRows> MakePlaces() {
  constexpr size_t kParts = 8 / kRows;
  Places<kRows> places{};
  for (size_t mask = 0; mask < places.size(); ++mask) {
    uint32_t next = 0;
    for (size_t row = 0; row < kRows; ++row) {
      for (size_t part = 0; part < kParts; ++part) {
        places[mask][row * kParts + part] = static_cast<uint32_t>(next * kParts + part);
      }
      next += static_cast<uint32_t>((mask >> row) & 1);
    }
  }
  return places;
}

template <size_t kRows>
alignas(32) constexpr Places<kRows> kPlaces = MakePlaces<kRows>();

// Packs eight bytes, each 0 or 1, into bits. No two bits of the products meet.
inline uint64_t MaskOf(const uint8_t* validity) {
  return (Load64Bits(validity) * 0x0102040810204080) >> 56;
}

template <typename T>
__attribute__((target("avx2"))) inline __m256i Broadcast(T value) {
  if constexpr (sizeof(T) == 8) {
    return _mm256_set1_epi64x(static_cast<int64_t>(value));
  } else {
    return _mm256_set1_epi32(static_cast<int32_t>(value));
  }
}

// All ones in the rows of a register that the mask selects.
template <typename T>
__attribute__((target("avx2"))) inline __m256i RowsOf(uint64_t mask) {
  if constexpr (sizeof(T) == 8) {
    const __m256i bits = _mm256_set_epi64x(8, 4, 2, 1);
    return _mm256_cmpeq_epi64(_mm256_and_si256(Broadcast(mask), bits), bits);
  } else {
    const __m256i bits = _mm256_set_epi32(128, 64, 32, 16, 8, 4, 2, 1);
    const __m256i masks = Broadcast(static_cast<uint32_t>(mask));
    return _mm256_cmpeq_epi32(_mm256_and_si256(masks, bits), bits);
  }
}

template <typename T, Stores kStores>
__attribute__((target("avx2,popcnt"))) void ExpandAvx2(const T* dense,
                                                       const uint8_t* validity,
                                                       int64_t num_rows, T fill, T* out) {
  constexpr size_t kRows = 32 / sizeof(T);
  const __m256i fills = Broadcast(fill);
  while (num_rows > 0 && reinterpret_cast<uintptr_t>(out) % 32 != 0) {
    const uint8_t is_valid = *validity++;
    *out++ = is_valid ? *dense : fill;
    dense += is_valid;
    --num_rows;
  }
  for (; num_rows >= 8; num_rows -= 8, validity += 8) {
    uint64_t mask = MaskOf(validity);
    for (size_t row = 0; row < 8; row += kRows, mask >>= kRows, out += kRows) {
      const uint64_t rows = mask & ((uint64_t{1} << kRows) - 1);
      const auto* places = reinterpret_cast<const __m256i*>(kPlaces<kRows>[rows].data());
      const __m256i values = _mm256_permutevar8x32_epi32(
          _mm256_loadu_si256(reinterpret_cast<const __m256i*>(dense)),
          _mm256_load_si256(places));
      const __m256i placed = _mm256_blendv_epi8(fills, values, RowsOf<T>(rows));
      auto* to = reinterpret_cast<__m256i*>(out);
      if constexpr (kStores == Stores::kStreaming) {
        _mm256_stream_si256(to, placed);
      } else {
        _mm256_store_si256(to, placed);
      }
      dense += std::popcount(rows);
    }
  }
  PlainExpand(dense, validity, num_rows, fill, out);
}

#endif

}  // namespace

template <typename T>
void PlainExpand(const T* dense, const uint8_t* validity, int64_t num_rows, T fill,
                 T* out) {
  for (int64_t row = 0; row < num_rows; ++row) {
    // Read in any case, to avoid a branch.
    const T value = *dense;
    out[row] = validity[row] ? value : fill;
    dense += validity[row];
  }
}

template <typename T>
ExpandFunction<T> ChooseExpand([[maybe_unused]] Stores stores) {
#if defined(__x86_64__)
  if constexpr (sizeof(T) >= 4) {
    if (ChosenInstructions() >= Instructions::kAvx2) {
      return stores == Stores::kStreaming ? ExpandAvx2<T, Stores::kStreaming>
                                          : ExpandAvx2<T, Stores::kCached>;
    }
  }
#endif
  return PlainExpand<T>;
}

template <typename T>
void ExpandCells(const T* dense, const uint8_t* validity, int64_t num_rows,
                 int64_t cell_items, T fill, T* out) {
  for (int64_t row = 0; row < num_rows; ++row, out += cell_items) {
    if (validity[row]) {
      std::copy_n(dense, cell_items, out);
      dense += cell_items;
    } else {
      std::fill_n(out, cell_items, fill);
    }
  }
}

#define TORCHPARQUET_INSTANTIATE(T)                                       \
  template ExpandFunction<T> ChooseExpand<T>(Stores);                     \
  template void PlainExpand<T>(const T*, const uint8_t*, int64_t, T, T*); \
  template void ExpandCells<T>(const T*, const uint8_t*, int64_t, int64_t, T, T*);
TORCHPARQUET_FOR_ITEM_TYPES(TORCHPARQUET_INSTANTIATE)
#undef TORCHPARQUET_INSTANTIATE

}  // namespace torchparquet::kernels
