#include "kernels/encodings/delta_binary_packed.h"

#include <algorithm>
#include <cstring>
#include <limits>
#include <string>
#include <type_traits>

#include "base/ceil_divide.h"
#include "base/errors.h"
#include "kernels/encodings/delta_groups.h"

namespace torchparquet::kernels {
namespace {

// Takes a variable-length integer from the front of `bytes`.
uint64_t TakeVarint(std::span<const uint8_t>* bytes) {
  uint64_t value = 0;
  for (int shift = 0; shift < 64; shift += 7) {
    if (bytes->empty()) throw CorruptFile("header of delta-encoded values is cut short");
    const uint8_t byte = bytes->front();
    *bytes = bytes->subspan(1);
    const auto bits = static_cast<uint64_t>(byte & 0x7F);
    if (shift == 63 && bits > 1) break;
    value |= bits << shift;
    if ((byte & 0x80) == 0) return value;
  }
  throw CorruptFile("integer of delta-encoded values is longer than 64 bits");
}

uint64_t TakeZigZag(std::span<const uint8_t>* bytes) {
  const uint64_t value = TakeVarint(bytes);
  return (value >> 1) ^ (0 - (value & 1));
}

// Takes a header figure. No writer means more than INT32_MAX, and below it no arithmetic
// on the figures overflows.
int64_t TakeFigure(std::span<const uint8_t>* bytes, const char* name) {
  const uint64_t figure = TakeVarint(bytes);
  if (figure > std::numeric_limits<int32_t>::max()) {
    throw CorruptFile(name, " of delta-encoded values is too large: ", figure);
  }
  return static_cast<int64_t>(figure);
}

}  // namespace

template <typename T>
DeltaBinaryPackedReader<T>::DeltaBinaryPackedReader(std::span<const uint8_t> bytes)
    : bytes_(bytes) {
  const int64_t block_values = TakeFigure(&bytes_, "block size");
  num_miniblocks_ = TakeFigure(&bytes_, "number of miniblocks");
  num_values_ = TakeFigure(&bytes_, "number of values");
  const uint64_t first = TakeZigZag(&bytes_);
  if (block_values == 0 || block_values % 128 != 0) {
    throw CorruptFile("block size of delta-encoded values must be a multiple of 128: ",
                      block_values);
  }
  if (num_miniblocks_ == 0 || block_values % num_miniblocks_ != 0 ||
      block_values / num_miniblocks_ % 32 != 0) {
    throw CorruptFile(
        "miniblocks of delta-encoded values must hold a multiple of 32 values: ",
        num_miniblocks_, " of ", block_values);
  }
  miniblock_values_ = block_values / num_miniblocks_;
  last_ = static_cast<T>(first);
  // Unsigned numbers of 32 bits are sign-extended by some writers and not by others.
  const auto widened = static_cast<int64_t>(static_cast<std::make_signed_t<T>>(last_));
  if (static_cast<uint64_t>(widened) != first && last_ != first) {
    throw CorruptFile("first of delta-encoded values does not fit ", 8 * sizeof(T),
                      " bits");
  }
  values_left_ = num_values_;
  if (num_values_ == 0) return;
  held_.front() = last_;
  held_end_ = 1;
  deltas_left_ = num_values_ - 1;
  // Every block has at least one byte of minimum and one per width.
  const int64_t num_blocks = CeilDivide(deltas_left_, block_values);
  if (num_blocks * (1 + num_miniblocks_) > static_cast<int64_t>(bytes_.size())) {
    throw CorruptFile("delta-encoded values are cut short: ", num_values_, " values in ",
                      bytes.size(), " bytes");
  }
}

template <typename T>
void DeltaBinaryPackedReader<T>::NextBlock() {
  // A minimum of more bits than T comes from writers that do not wrap deltas; modulo the
  // width of T it is the same.
  min_delta_ = static_cast<T>(TakeZigZag(&bytes_));
  const auto num_widths = static_cast<size_t>(num_miniblocks_);
  if (bytes_.size() < num_widths) {
    throw CorruptFile("bit widths of delta-encoded values are cut short");
  }
  widths_ = bytes_.first(num_widths);
  bytes_ = bytes_.subspan(num_widths);
}

// Opens the next miniblock. The widths of miniblocks without values are not checked,
// since some writers leave garbage there.
template <typename T>
void DeltaBinaryPackedReader<T>::NextMiniblock() {
  if (widths_.empty()) NextBlock();
  width_ = widths_.front();
  widths_ = widths_.subspan(1);
  // Writers that do not wrap deltas use more bits than T has.
  if (width_ > kMaxDeltaWidth) {
    throw CorruptFile("bit width of delta-encoded values must be at most ",
                      kMaxDeltaWidth, ": ", width_);
  }
  packed_left_ = std::min(deltas_left_, miniblock_values_);
  const auto available = static_cast<int64_t>(bytes_.size());
  if ((packed_left_ * width_ + 7) / 8 > available) {
    throw CorruptFile("delta-encoded values are cut short");
  }
  // Some writers leave out the padding of the last miniblock.
  const int64_t num_bytes = std::min(miniblock_values_ / 8 * width_, available);
  packed_ = bytes_.first(static_cast<size_t>(num_bytes));
  bytes_ = bytes_.subspan(static_cast<size_t>(num_bytes));
}

template <typename T>
void DeltaBinaryPackedReader<T>::Read(T* out, int64_t num_values) {
  if (num_values > values_left_) throw TooFewValues();
  values_left_ -= num_values;
  T* const end = out + num_values;
  out = TakeHeld(out, num_values);
  while (out != end) {
    if (packed_left_ == 0) NextMiniblock();
    const int64_t num_groups = std::min(end - out, packed_left_) / kGroupValues;
    const int64_t num_read = num_groups > 0 ? ReadWholeGroups(out, num_groups) : 0;
    out += num_read;
    if (num_read == 0) {
      HoldGroup();
      out = TakeHeld(out, end - out);
    }
  }
}

template <typename T>
void DeltaBinaryPackedReader<T>::Skip(int64_t num_values) {
  if (num_values > values_left_) throw TooFewValues();
  std::array<T, 256> block;
  while (num_values > 0) {
    const int64_t count = std::min<int64_t>(num_values, block.size());
    Read(block.data(), count);
    num_values -= count;
  }
}

template <typename T>
std::span<const uint8_t> DeltaBinaryPackedReader<T>::Rest() const {
  if (values_left_ != 0) {
    throw Error(ErrorKind::kInternal, "delta-encoded values must all be read first");
  }
  return bytes_;
}

// Returns the end of the written values.
template <typename T>
T* DeltaBinaryPackedReader<T>::TakeHeld(T* out, int64_t num_values) {
  const int64_t count = std::min(num_values, held_end_ - held_begin_);
  std::copy_n(held_.data() + held_begin_, count, out);
  held_begin_ += count;
  return out + count;
}

// Decodes whole groups, at most `num_groups`, as far as loads stay within the page.
// Returns the number of values written.
template <typename T>
int64_t DeltaBinaryPackedReader<T>::ReadWholeGroups(T* out, int64_t num_groups) {
  const auto readable =
      static_cast<int64_t>(packed_.size() + bytes_.size()) - GroupReadableBytes(width_);
  if (width_ > 0 && (num_groups - 1) * width_ > readable) {
    // Rare: only the last miniblocks cost a division.
    if (readable < 0) return 0;
    num_groups = readable / width_ + 1;
  }
  last_ =
      ChooseDecodeDeltas<T>(width_)(packed_.data(), num_groups, min_delta_, last_, out);
  const int64_t num_values = num_groups * kGroupValues;
  packed_ = packed_.subspan(static_cast<size_t>(num_groups * width_));
  packed_left_ -= num_values;
  deltas_left_ -= num_values;
  return num_values;
}

// Decodes the next group from a padded copy. The group may stand at the very end of the
// page, or end a miniblock that is cut short.
template <typename T>
void DeltaBinaryPackedReader<T>::HoldGroup() {
  std::array<uint8_t, GroupReadableBytes(kMaxDeltaWidth)> padded{};
  const size_t num_bytes = std::min(packed_.size(), static_cast<size_t>(width_));
  if (num_bytes > 0) std::memcpy(padded.data(), packed_.data(), num_bytes);
  last_ =
      ChooseDecodeDeltas<T>(width_)(padded.data(), 1, min_delta_, last_, held_.data());
  packed_ = packed_.subspan(num_bytes);
  held_begin_ = 0;
  held_end_ = std::min<int64_t>(packed_left_, kGroupValues);
  packed_left_ -= held_end_;
  deltas_left_ -= held_end_;
}

template class DeltaBinaryPackedReader<uint32_t>;
template class DeltaBinaryPackedReader<uint64_t>;

}  // namespace torchparquet::kernels
