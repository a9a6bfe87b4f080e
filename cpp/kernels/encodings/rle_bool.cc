#include "kernels/encodings/rle_bool.h"

#include <algorithm>
#include <cstring>
#include <string>

#include "base/errors.h"
#include "kernels/levels/validity.h"

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
    throw CorruptFile(
        "run-length encoded booleans are cut short: " + std::to_string(bytes.size()) +
        " of " + std::to_string(num_bytes) + " bytes");
  }
  return bytes.first(num_bytes);
}

}  // namespace

RleBoolReader::RleBoolReader(std::span<const uint8_t> bytes)
    : runs_(TakeRuns(bytes), /*bit_width=*/1) {}

// Moves on within one run, by at least one and at most `num_values` values. Returns by
// how many.
int64_t RleBoolReader::TakeFromRun(int64_t num_values) {
  while (run_position_ == run_.num_values) {
    if (!runs_.Next(&run_)) {
      throw CorruptFile("page holds fewer values than its header says");
    }
    run_position_ = 0;
    if (!run_.packed && run_.value > 1) {
      throw CorruptFile("boolean must be 0 or 1: " + std::to_string(run_.value));
    }
  }
  const int64_t count = std::min(num_values, run_.num_values - run_position_);
  run_position_ += count;
  return count;
}

void RleBoolReader::Read(uint8_t* out, int64_t num_values) {
  while (num_values > 0) {
    const int64_t count = TakeFromRun(num_values);
    if (run_.packed) {
      UnpackBits(run_.bytes.data(), run_position_ - count, count, out);
    } else {
      std::memset(out, static_cast<int>(run_.value), static_cast<size_t>(count));
    }
    out += count;
    num_values -= count;
  }
}

void RleBoolReader::Skip(int64_t num_values) {
  while (num_values > 0) num_values -= TakeFromRun(num_values);
}

}  // namespace torchparquet::kernels
