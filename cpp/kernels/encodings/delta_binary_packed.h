#pragma once

#include <array>
#include <cstdint>
#include <span>

#include "kernels/bit_unpack.h"

namespace torchparquet::kernels {

// Decodes the DELTA_BINARY_PACKED values of one page, or the lengths in front of
// DELTA_LENGTH_BYTE_ARRAY and DELTA_BYTE_ARRAY values. T is the bit pattern of the
// values: uint32_t or uint64_t. Source: parquet-format, Encodings.md, "Delta Encoding".
template <typename T>
class DeltaBinaryPackedReader {
 public:
  // `bytes` starts at the header and must outlive the reader; more bytes may follow the
  // values. Throws Error(kCorruptFile) if the header is cut short or its figures cannot
  // be right.
  explicit DeltaBinaryPackedReader(std::span<const uint8_t> bytes);

  // The number of values by the header, including those already read. At most INT32_MAX,
  // but not bounded by the number of bytes: equal steps take no bytes.
  int64_t num_values() const { return num_values_; }

  // Both throw Error(kCorruptFile) if fewer values are left or their bytes are cut short.
  void Read(T* out, int64_t num_values);
  void Skip(int64_t num_values);

  // The bytes after the last miniblock. All values must have been read or skipped.
  std::span<const uint8_t> Rest() const;

 private:
  void NextBlock();
  void NextMiniblock();
  T* TakeHeld(T* out, int64_t num_values);
  int64_t ReadWholeGroups(T* out, int64_t num_groups);
  void HoldGroup();

  std::span<const uint8_t> bytes_;  // after the current miniblock
  int64_t num_values_ = 0;
  int64_t values_left_ = 0;  // neither read nor skipped
  int64_t deltas_left_ = 0;  // not decoded yet

  int64_t num_miniblocks_ = 0;  // in a block
  int64_t miniblock_values_ = 0;
  T min_delta_ = 0;
  std::span<const uint8_t> widths_;  // of the next miniblocks of the block

  std::span<const uint8_t> packed_;  // deltas of the current miniblock, from a group on
  int64_t packed_left_ = 0;          // how many of them hold values
  int width_ = 0;

  T last_ = 0;  // the last value that was decoded
  // Values that were decoded but not read yet: the first value, or those of a group.
  std::array<T, kGroupValues> held_{};
  int64_t held_begin_ = 0;
  int64_t held_end_ = 0;
};

extern template class DeltaBinaryPackedReader<uint32_t>;
extern template class DeltaBinaryPackedReader<uint64_t>;

}  // namespace torchparquet::kernels
