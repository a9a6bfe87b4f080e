#pragma once

#include <cstdint>

namespace torchparquet {

// Numbers that files hold. Source: parquet-format, parquet.thrift.

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

}  // namespace torchparquet
