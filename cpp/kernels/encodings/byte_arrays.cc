#include "kernels/encodings/byte_arrays.h"

#include <algorithm>
#include <cstring>
#include <limits>
#include <numeric>
#include <string>

#include "base/errors.h"

namespace torchparquet::kernels {
namespace {

constexpr size_t kLengthBytes = sizeof(uint32_t);
// Values with at most this mean length count as short.
constexpr size_t kShortBytes = 64;

}  // namespace

// Moves past the next value. Returns its length.
uint32_t PlainByteArrayReader::TakeValue() {
  uint32_t length;
  if (bytes_.size() < kLengthBytes) throw TooFewValues();
  std::memcpy(&length, bytes_.data(), kLengthBytes);
  if (length > bytes_.size() - kLengthBytes) {
    throw CorruptFile("length of a value goes beyond its page: ", length);
  }
  bytes_ = bytes_.subspan(kLengthBytes + length);
  return length;
}

// Reads values up to the first one that is damaged or does not fit the room for short
// values. Returns their number. Each length says where the next length is; reading and
// copying in one loop hides that wait: 7 to 11 % of a pass over strings of 16 bytes.
int64_t PlainByteArrayReader::ReadShort(int64_t num_values, uint32_t* lengths,
                                        ByteSink* sink) {
  const size_t room =
      std::min(bytes_.size(), static_cast<size_t>(num_values) * kShortBytes);
  const size_t begin = sink->size();
  // Room that values turn out not to need is not worth moving the sink's content.
  const size_t most = std::min(sink->capacity(), sink->max_bytes());
  if (begin + room + ByteSink::kSlackBytes > most) return 0;
  uint8_t* out = sink->Extend(room);
  const uint8_t* const out_end = out + room;
  const uint8_t* in = bytes_.data();
  const uint8_t* const end = in + bytes_.size();
  int64_t done = 0;
  for (; done < num_values; ++done) {
    uint32_t length;
    if (static_cast<size_t>(end - in) < kLengthBytes) break;
    std::memcpy(&length, in, kLengthBytes);
    if (length > static_cast<size_t>(end - in) - kLengthBytes) break;
    if (length > static_cast<size_t>(out_end - out)) break;
    in += kLengthBytes;
    CopyBytes(in, end, length, out);
    in += length;
    out += length;
    lengths[done] = length;
  }
  bytes_ = {in, end};
  sink->Truncate(begin + room - static_cast<size_t>(out_end - out));
  return done;
}

void PlainByteArrayReader::Read(int64_t num_values, uint32_t* lengths, ByteSink* sink) {
  while (num_values > 0) {
    const int64_t wanted = std::min(num_values, kByteArrayBlock);
    const int64_t num_short = ReadShort(wanted, lengths, sink);
    lengths += num_short;
    num_values -= num_short;
    const int64_t count = wanted - num_short;
    const uint8_t* in = bytes_.data();
    const uint8_t* const readable_end = in + bytes_.size();
    size_t num_bytes = 0;
    for (int64_t i = 0; i < count; ++i) num_bytes += lengths[i] = TakeValue();
    uint8_t* out = sink->Extend(num_bytes);
    for (int64_t i = 0; i < count; ++i) {
      in += kLengthBytes;
      CopyBytes(in, readable_end, lengths[i], out);
      in += lengths[i];
      out += lengths[i];
    }
    lengths += count;
    num_values -= count;
  }
}

void PlainByteArrayReader::Skip(int64_t num_values) {
  for (; num_values > 0; --num_values) TakeValue();
}
namespace {

// Checks all lengths and returns the bytes after them.
std::span<const uint8_t> FindValues(DeltaBinaryPackedReader<uint32_t> lengths,
                                    int64_t max_values) {
  if (lengths.num_values() > max_values) {
    throw CorruptFile("page holds more lengths than values: ", lengths.num_values(),
                      " for ", max_values);
  }
  // The sum of at most INT32_MAX lengths below 2^32 cannot overflow.
  uint64_t num_bytes = 0;
  uint32_t signs = 0;
  std::array<uint32_t, kByteArrayBlock> block;
  for (int64_t left = lengths.num_values(); left > 0;) {
    const int64_t count = std::min(left, kByteArrayBlock);
    lengths.Read(block.data(), count);
    for (int64_t i = 0; i < count; ++i) {
      signs |= block[static_cast<size_t>(i)];
      num_bytes += block[static_cast<size_t>(i)];
    }
    left -= count;
  }
  if (signs > uint32_t{std::numeric_limits<int32_t>::max()}) {
    throw CorruptFile("length of a value is negative");
  }
  const std::span<const uint8_t> values = lengths.Rest();
  if (num_bytes > values.size()) {
    throw CorruptFile("lengths of values go beyond their page: ", num_bytes, " of ",
                      values.size(), " bytes");
  }
  return values;
}

}  // namespace

DeltaLengthByteArrayReader::DeltaLengthByteArrayReader(std::span<const uint8_t> bytes,
                                                       int64_t max_values)
    : lengths_(bytes), values_(FindValues(lengths_, max_values)) {}

const uint8_t* DeltaLengthByteArrayReader::Take(int64_t num_values, uint32_t* lengths) {
  lengths_.Read(lengths, num_values);
  size_t num_bytes = 0;
  for (int64_t i = 0; i < num_values; ++i) num_bytes += lengths[i];
  const uint8_t* first = values_.data();
  values_ = values_.subspan(num_bytes);
  return first;
}

void DeltaLengthByteArrayReader::Read(int64_t num_values, uint32_t* lengths,
                                      ByteSink* sink) {
  const uint8_t* first = Take(num_values, lengths);
  const auto num_bytes = static_cast<size_t>(values_.data() - first);
  uint8_t* out = sink->Extend(num_bytes);
  if (num_bytes > 0) std::memcpy(out, first, num_bytes);
}

void DeltaLengthByteArrayReader::Skip(int64_t num_values) {
  std::array<uint32_t, kByteArrayBlock> lengths;
  while (num_values > 0) {
    const int64_t count = std::min(num_values, kByteArrayBlock);
    Take(count, lengths.data());
    num_values -= count;
  }
}
namespace {

// Returns the bytes after the lengths.
std::span<const uint8_t> After(DeltaBinaryPackedReader<uint32_t> lengths,
                               int64_t max_values) {
  if (lengths.num_values() > max_values) {
    throw CorruptFile("page holds more prefixes than values: ", lengths.num_values(),
                      " for ", max_values);
  }
  lengths.Skip(lengths.num_values());
  return lengths.Rest();
}

}  // namespace

DeltaByteArrayReader::DeltaByteArrayReader(std::span<const uint8_t> bytes,
                                           int64_t max_values)
    : prefix_lengths_(bytes), suffixes_(After(prefix_lengths_, max_values), max_values) {
  if (prefix_lengths_.num_values() != suffixes_.num_values()) {
    throw CorruptFile("prefixes and suffixes of values differ in number: ",
                      prefix_lengths_.num_values(), " and ", suffixes_.num_values());
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
      throw CorruptFile("prefix of a value is longer than the value before it: ",
                        prefix_length, " of ", length);
    }
    length = uint64_t{prefix_length} + parts->suffix_lengths[i];
    if (length > std::numeric_limits<uint32_t>::max()) {
      throw CorruptFile("length of a value does not fit 32 bits: ", length);
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
