#pragma once

#include <cstdint>
#include <optional>
#include <span>

namespace torchparquet {

// The header of a page.
struct PageHeader {
  enum class Kind { kData, kDataV2, kDictionary, kOther };

  Kind kind = Kind::kOther;
  int64_t header_bytes = 0;        // of the header itself
  int64_t compressed_bytes = 0;    // of the bytes that follow
  int64_t uncompressed_bytes = 0;  // after decompression
  std::optional<uint32_t> checksum;
  int64_t num_values = 0;  // including nulls
  int encoding = -1;       // Encoding::Number
  // V1 only, of the same type.
  int definition_level_encoding = -1;
  int repetition_level_encoding = -1;
  // V2 only.
  int64_t definition_level_bytes = 0;
  int64_t repetition_level_bytes = 0;
  bool is_compressed = true;

  bool is_data() const { return kind == Kind::kData || kind == Kind::kDataV2; }
};

// Reads the header at the start of `bytes`. Returns nothing if it continues after them.
// Throws Error(kCorruptFile) for bytes that are no page header, a negative size, or a
// header without an encoding.
//
// Arrow's page reader makes strings of the statistics and objects of the rest, and cannot
// stop between two pages and go on elsewhere. Source: parquet-format, parquet.thrift.
std::optional<PageHeader> ParsePageHeader(std::span<const uint8_t> bytes);

}  // namespace torchparquet
