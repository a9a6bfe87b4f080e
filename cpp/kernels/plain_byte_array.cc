#include "kernels/plain_byte_array.h"

#include <algorithm>
#include <cstring>
#include <string>

#include "errors.h"

namespace torchparquet::kernels {
namespace {

constexpr size_t kLengthBytes = sizeof(uint32_t);

}  // namespace

// Moves past the next value. Returns its length.
uint32_t PlainByteArrayReader::TakeValue() {
  uint32_t length;
  if (bytes_.size() < kLengthBytes) {
    throw CorruptFile("page holds fewer values than its header says");
  }
  std::memcpy(&length, bytes_.data(), kLengthBytes);
  if (length > bytes_.size() - kLengthBytes) {
    throw CorruptFile("length of a value goes beyond its page: " +
                      std::to_string(length));
  }
  bytes_ = bytes_.subspan(kLengthBytes + length);
  return length;
}

void PlainByteArrayReader::Read(int64_t num_values, uint32_t* lengths, ByteSink* sink) {
  while (num_values > 0) {
    const int64_t count = std::min(num_values, kByteArrayBlock);
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
