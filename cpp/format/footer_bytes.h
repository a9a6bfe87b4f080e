#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "format/footer_scan.h"
#include "format/source.h"

namespace torchparquet {

// The meaning of the last bytes of a file.
struct FooterEnd {
  static constexpr int64_t kNumBytes = 8;  // the length and four letters

  // Bytes of the footer; 0 if this is no Parquet file, or the file is too short for the
  // footer.
  int64_t num_bytes = 0;
  bool is_plain = false;  // a footer that is not encrypted
  bool is_encrypted = false;

  static FooterEnd Read(std::span<const uint8_t, kNumBytes> end, int64_t file_bytes);
};

// The bytes of a file's footer.
class FooterBytes {
 public:
  // Reads the end of the file, which usually includes the whole footer, by one call.
  explicit FooterBytes(const Source& file);

  const FooterEnd& end() const { return end_; }
  std::span<const uint8_t> bytes() const;
  // The footer and all that follows it.
  std::vector<uint8_t> Content() const;
  // Nothing where it takes a real parser to tell what the footer says. Views the bytes.
  std::optional<FooterScan> Scan() const;
  // The file's bytes from some place to its end, with the footer.
  std::span<const uint8_t> file_end() const { return bytes_; }
  // Sizes, places and statistics of all column chunks are in there, so that other values
  // hardly ever have the same.
  int64_t Digest() const;

 private:
  void Read(const Source& file, int64_t num_bytes);

  std::vector<uint8_t> bytes_;
  FooterEnd end_;
};

}  // namespace torchparquet
