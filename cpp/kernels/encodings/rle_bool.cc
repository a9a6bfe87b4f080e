#include "kernels/encodings/rle_bool.h"

#include <cstring>
#include <string>

#include "base/errors.h"
#include "kernels/bit_unpack.h"

namespace torchparquet::kernels {
namespace {

std::span<const uint8_t> TakeRuns(std::span<const uint8_t> bytes) {
  uint32_t num_bytes = 0;
  if (bytes.size() < sizeof(num_bytes)) {
    throw CorruptFile("length of run-length encoded booleans is cut short");
  }
  for (size_t i = 0; i < sizeof(num_bytes); ++i) {
    num_bytes |= uint32_t{bytes[i]} << (8 * i);
  }
  bytes = bytes.subspan(sizeof(num_bytes));
  if (num_bytes > bytes.size()) {
    throw CorruptFile("run-length encoded booleans are cut short: ", bytes.size(), " of ",
                      num_bytes, " bytes");
  }
  return bytes.first(num_bytes);
}

}  // namespace

RleBoolReader::RleBoolReader(std::span<const uint8_t> bytes)
    : runs_(TakeRuns(bytes), /*bit_width=*/1) {}

template <typename Use>
void RleBoolReader::Take(int64_t num_values, Use use) {
  constexpr const char* kTooFew = "page holds fewer values than its header says";
  runs_.Take(num_values, kTooFew, [&](const RunPart& part) {
    if (!part.run.packed && part.run.value > 1) {
      throw CorruptFile("boolean must be 0 or 1: ", part.run.value);
    }
    use(part);
  });
}

void RleBoolReader::Read(uint8_t* out, int64_t num_values) {
  Take(num_values, [&](const RunPart& part) {
    if (part.run.packed) {
      UnpackBits(part.run.bytes.data(), part.begin, part.count, out);
    } else {
      std::memset(out, static_cast<int>(part.run.value), static_cast<size_t>(part.count));
    }
    out += part.count;
  });
}

void RleBoolReader::Skip(int64_t num_values) {
  Take(num_values, [](const RunPart&) {});
}

}  // namespace torchparquet::kernels
