#include "kernels/encodings/delta_byte_array.h"

#include <algorithm>
#include <cstring>
#include <limits>
#include <numeric>
#include <string>

#include "base/errors.h"

namespace torchparquet::kernels {
namespace {

// Returns the bytes after the lengths.
std::span<const uint8_t> After(DeltaBinaryPackedReader<uint32_t> lengths,
                               int64_t max_values) {
  if (lengths.num_values() > max_values) {
    throw CorruptFile(
        "page holds more prefixes than values: " + std::to_string(lengths.num_values()) +
        " for " + std::to_string(max_values));
  }
  lengths.Skip(lengths.num_values());
  return lengths.Rest();
}

}  // namespace

DeltaByteArrayReader::DeltaByteArrayReader(std::span<const uint8_t> bytes,
                                           int64_t max_values)
    : prefix_lengths_(bytes), suffixes_(After(prefix_lengths_, max_values), max_values) {
  if (prefix_lengths_.num_values() != suffixes_.num_values()) {
    throw CorruptFile("prefixes and suffixes of values differ in number: " +
                      std::to_string(prefix_lengths_.num_values()) + " and " +
                      std::to_string(suffixes_.num_values()));
  }
  // The empty value before the first one has memory too, so that it can be copied from.
  previous_.Extend(0);
}

void DeltaByteArrayReader::Read(int64_t num_values, uint32_t* lengths, ByteSink* sink) {
  Parts parts;
  while (num_values > 0) {
    const int64_t count = std::min(num_values, kByteArrayBlock);
    Take(count, &parts, lengths);
    Join(parts, {lengths, static_cast<size_t>(count)}, sink);
    lengths += count;
    num_values -= count;
  }
}

void DeltaByteArrayReader::Skip(int64_t num_values) {
  Parts parts;
  std::array<uint32_t, kByteArrayBlock> lengths;
  while (num_values > 0) {
    const int64_t count = std::min(num_values, kByteArrayBlock);
    Take(count, &parts, lengths.data());
    const uint8_t* suffix = parts.suffixes;
    for (size_t i = 0; i < static_cast<size_t>(count); ++i) {
      const uint32_t suffix_length = parts.suffix_lengths[i];
      previous_.Truncate(parts.prefix_lengths[i]);
      CopyBytes(suffix, suffixes_.ReadableEnd(), suffix_length,
                previous_.Extend(suffix_length));
      suffix += suffix_length;
    }
    num_values -= count;
  }
}

// Takes the parts of the next values and writes the lengths of both together.
void DeltaByteArrayReader::Take(int64_t num_values, Parts* parts, uint32_t* lengths) {
  prefix_lengths_.Read(parts->prefix_lengths.data(), num_values);
  parts->suffixes = suffixes_.Take(num_values, parts->suffix_lengths.data());
  uint64_t length = previous_.size();
  for (size_t i = 0; i < static_cast<size_t>(num_values); ++i) {
    const uint32_t prefix_length = parts->prefix_lengths[i];
    if (prefix_length > length) {
      throw CorruptFile("prefix of a value is longer than the value before it: " +
                        std::to_string(prefix_length) + " of " + std::to_string(length));
    }
    length = uint64_t{prefix_length} + parts->suffix_lengths[i];
    if (length > std::numeric_limits<uint32_t>::max()) {
      throw CorruptFile("length of a value does not fit 32 bits: " +
                        std::to_string(length));
    }
    lengths[i] = static_cast<uint32_t>(length);
  }
}

// Appends the values to `sink`. All but the first find the value before them there.
void DeltaByteArrayReader::Join(const Parts& parts, std::span<const uint32_t> lengths,
                                ByteSink* sink) {
  const size_t num_bytes = std::accumulate(lengths.begin(), lengths.end(), size_t{0});
  uint8_t* out = sink->Extend(num_bytes);
  const uint8_t* const out_readable_end = out + num_bytes + ByteSink::kSlackBytes;
  const uint8_t* previous = previous_.bytes().data();
  const uint8_t* readable_end = previous + previous_.size() + ByteSink::kSlackBytes;
  const uint8_t* suffix = parts.suffixes;
  for (size_t i = 0; i < lengths.size(); ++i) {
    const uint32_t prefix_length = parts.prefix_lengths[i];
    const uint32_t suffix_length = parts.suffix_lengths[i];
    CopyBytes(previous, readable_end, prefix_length, out);
    CopyBytes(suffix, suffixes_.ReadableEnd(), suffix_length, out + prefix_length);
    previous = out;
    readable_end = out_readable_end;
    suffix += suffix_length;
    out += lengths[i];
  }
  previous_.Clear();
  uint8_t* kept = previous_.Extend(lengths.back());
  if (lengths.back() > 0) std::memcpy(kept, previous, lengths.back());
}

}  // namespace torchparquet::kernels
