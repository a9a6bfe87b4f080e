#pragma once

#include <cstdint>
#include <optional>
#include <span>

namespace torchparquet {

// What stands before the bytes of a page.
struct PageHeader {
  enum class Kind { kData, kDataV2, kDictionary, kOther };

  Kind kind = Kind::kOther;
  int64_t header_bytes = 0;        // of the header itself
  int64_t compressed_bytes = 0;    // that follow it
  int64_t uncompressed_bytes = 0;  // that they become
  std::optional<uint32_t> checksum;
  int64_t num_values = 0;  // nulls count
  int encoding = -1;       // parquet::Encoding::type
  // V1 only, of that type too.
  int definition_level_encoding = -1;
  int repetition_level_encoding = -1;
  // V2 only.
  int64_t definition_level_bytes = 0;
  int64_t repetition_level_bytes = 0;
  bool is_compressed = true;

  bool is_data() const { return kind == Kind::kData || kind == Kind::kDataV2; }
};

// Reads the header at the start of `bytes`; nothing when it goes on behind their end.
// Throws Error(kCorruptFile) for what is no page header, has a negative size, or does
// not say how values are encoded.
//
// Arrow's page reader makes strings of the statistics and a buffer and a page object
// of the rest, and cannot be stopped between two pages and gone on with elsewhere.
// Source: parquet-format, parquet.thrift.
std::optional<PageHeader> ParsePageHeader(std::span<const uint8_t> bytes);

}  // namespace torchparquet
