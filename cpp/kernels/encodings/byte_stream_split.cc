#include "kernels/encodings/byte_stream_split.h"

#include <cstddef>
#include <utility>

#include "kernels/bit_unpack.h"

#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace torchparquet::kernels {
namespace {

void DecodeOneByOne(const ByteStreams& streams, int64_t num_values, uint8_t* out) {
  for (int64_t i = 0; i < num_values; ++i) {
    const uint8_t* in = streams.first + i;
    for (int byte = 0; byte < streams.width; ++byte) {
      *out++ = *in;
      in += streams.stride;
    }
  }
}

// For any width: one load for the bytes that eight values have in a stream, one store for
// each value.
int64_t DecodeGroups(const ByteStreams& streams, int64_t num_values, uint8_t* out) {
  const int64_t num_whole = num_values / kGroupValues * kGroupValues;
  const int64_t width = streams.width;
  for (int64_t i = 0; i < num_whole; i += kGroupValues) {
    for (int64_t byte = 0; byte < width; ++byte) {
      uint64_t word = Load64Bits(streams.first + byte * streams.stride + i);
      uint8_t* place = out + i * width + byte;
      for (int value = 0; value < kGroupValues; ++value) {
        *place = static_cast<uint8_t>(word);
        place += width;
        word >>= 8;
      }
    }
  }
  return num_whole;
}

#if defined(__x86_64__)

// Values decoded at once: as many as a register has bytes.
constexpr int64_t kBlockValues = 16;

// A register of each stream; later, registers of values.
template <size_t kWidth>
struct Block {
  __m128i parts[kWidth];
};

// Interleaves part k of the lower half with part k of the upper half, byte by byte. After
// log2(kWidth) times, the bytes of each value stand together, in order.
template <size_t kWidth, size_t... kPart>
inline Block<kWidth> Weave(const Block<kWidth>& block, std::index_sequence<kPart...>) {
  constexpr size_t kHalf = kWidth / 2;
  return {{(kPart % 2 == 0 ? _mm_unpacklo_epi8(block.parts[kPart / 2],
                                               block.parts[kPart / 2 + kHalf])
                           : _mm_unpackhi_epi8(block.parts[kPart / 2],
                                               block.parts[kPart / 2 + kHalf]))...}};
}

// Transposes whole blocks in registers.
template <size_t kWidth, size_t... kPart>
int64_t DecodeBlocks(const ByteStreams& streams, int64_t num_values, uint8_t* out,
                     std::index_sequence<kPart...> parts) {
  const int64_t num_whole = num_values / kBlockValues * kBlockValues;
  const uint8_t* const in[] = {(streams.first + kPart * streams.stride)...};
  for (int64_t i = 0; i < num_whole; i += kBlockValues) {
    // The intrinsics take unaligned bytes by the types of the registers, here and below.
    Block<kWidth> block = {
        {_mm_loadu_si128(reinterpret_cast<const __m128i*>(in[kPart] + i))...}};
    block = Weave(block, parts);
    if constexpr (kWidth > 2) block = Weave(block, parts);
    if constexpr (kWidth > 4) block = Weave(block, parts);
    (_mm_storeu_si128(reinterpret_cast<__m128i*>(out) + kPart, block.parts[kPart]), ...);
    out += sizeof(block);
  }
  return num_whole;
}

template <size_t kWidth>
int64_t DecodeBlocks(const ByteStreams& streams, int64_t num_values, uint8_t* out) {
  return DecodeBlocks<kWidth>(streams, num_values, out,
                              std::make_index_sequence<kWidth>());
}

#else

template <size_t>
int64_t DecodeBlocks(const ByteStreams& streams, int64_t num_values, uint8_t* out) {
  return DecodeGroups(streams, num_values, out);
}

#endif

}  // namespace

void DecodeByteStreamSplit(const ByteStreams& streams, int64_t num_values, uint8_t* out) {
  const auto decode = [&] {
    switch (streams.width) {
      case 2:
        return DecodeBlocks<2>(streams, num_values, out);
      case 4:
        return DecodeBlocks<4>(streams, num_values, out);
      case 8:
        return DecodeBlocks<8>(streams, num_values, out);
      default:
        return DecodeGroups(streams, num_values, out);
    }
  };
  const int64_t done = decode();
  DecodeOneByOne({streams.first + done, streams.stride, streams.width}, num_values - done,
                 out + done * streams.width);
}

}  // namespace torchparquet::kernels
