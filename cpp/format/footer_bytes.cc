#include "format/footer_bytes.h"

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <iterator>

#include "kernels/xxhash64.h"

namespace torchparquet {

FooterEnd FooterEnd::Read(std::span<const uint8_t, kNumBytes> end, int64_t file_bytes) {
  int64_t num_bytes = 0;
  for (size_t i = 0; i < 4; ++i) num_bytes |= int64_t{end[i]} << (8 * i);
  const auto letters_are = [&](const char* letters) {
    return std::memcmp(end.data() + 4, letters, 4) == 0;
  };
  const bool fits = num_bytes <= file_bytes - kNumBytes;
  const bool is_encrypted = letters_are("PARE");
  const bool is_plain = fits && letters_are("PAR1");
  return {.num_bytes = is_plain || (fits && is_encrypted) ? num_bytes : 0,
          .is_plain = is_plain,
          .is_encrypted = is_encrypted};
}

FooterBytes::FooterBytes(const Source& file) {
  const int64_t most = file.num_bytes();
  Read(file, std::min(most, file.footer_read_bytes()));
  if (most < FooterEnd::kNumBytes) return;
  const std::span<const uint8_t> bytes(bytes_);
  end_ = FooterEnd::Read(bytes.last<FooterEnd::kNumBytes>(), most);
  const int64_t wanted = end_.num_bytes + FooterEnd::kNumBytes;
  if (wanted > std::ssize(bytes_)) Read(file, wanted);
}

void FooterBytes::Read(const Source& file, int64_t num_bytes) {
  bytes_.resize(static_cast<size_t>(num_bytes));
  file.LookAt(file.num_bytes() - num_bytes, num_bytes, bytes_.data());
}

std::span<const uint8_t> FooterBytes::bytes() const {
  const auto size = static_cast<size_t>(end_.num_bytes);
  const size_t trailer = std::min(bytes_.size(), size_t{FooterEnd::kNumBytes});
  return std::span(bytes_).first(bytes_.size() - trailer).last(size);
}

std::vector<uint8_t> FooterBytes::Content() const {
  return {bytes_.end() - end_.num_bytes - FooterEnd::kNumBytes, bytes_.end()};
}

std::optional<FooterScan> FooterBytes::Scan() const {
  return end_.is_plain ? ScanFooter(bytes()) : std::nullopt;
}

int64_t FooterBytes::Digest() const {
  return static_cast<int64_t>(kernels::XxHash64(bytes()));
}

}  // namespace torchparquet
