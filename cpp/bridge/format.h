#pragma once

#include <cstdint>
#include <optional>

namespace torchparquet {

// Numbers that files hold, and headers of pages. Source: parquet-format, parquet.thrift.

enum class PhysicalType : int8_t {
  kUnknown = -1,
  kBoolean = 0,
  kInt32 = 1,
  kInt64 = 2,
  kInt96 = 3,
  kFloat = 4,
  kDouble = 5,
  kByteArray = 6,
  kFixedBytes = 7,
};

// A number of another encoding may stand in a file, so encodings are kept as int.
struct Encoding {
  enum Number : int {
    kPlain = 0,
    kPlainDictionary = 2,
    kRle = 3,
    kBitPacked = 4,
    kDeltaBinaryPacked = 5,
    kDeltaLengthByteArray = 6,
    kDeltaByteArray = 7,
    kRleDictionary = 8,
    kByteStreamSplit = 9,
  };
};

// Kept as int for the same reason.
struct Codec {
  enum Number : int {
    kUnknown = -1,
    kNone = 0,
    kSnappy = 1,
    kGzip = 2,
    kLzo = 3,
    kBrotli = 4,
    kLz4Hadoop = 5,  // "LZ4" of the format: in Hadoop's frame, as a rule
    kZstd = 6,
    kLz4 = 7,  // "LZ4_RAW": a block alone
  };
};

// The header of a page. Sizes are those that a writer claims.
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

}  // namespace torchparquet
