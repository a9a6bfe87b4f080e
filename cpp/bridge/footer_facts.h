#pragma once

#include <algorithm>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "bridge/format.h"

namespace torchparquet {

// The content of a footer, as plain values.

struct LogicalType {
  enum class Kind : int8_t {
    kNone,  // also GEOMETRY and other types that are read as they are stored
    kString,
    kEnum,
    kJson,
    kBson,
    kNull,
    kInt,
    kDate,
    kTime,
    kTimestamp,
    kDecimal,
    kFloat16,
    kUuid,
    kInterval,
  };
  enum class Unit : int8_t { kUnknown, kMillis, kMicros, kNanos };

  Kind kind = Kind::kNone;
  // kInt.
  bool is_signed = false;
  int bit_width = 0;
  // kTime and kTimestamp.
  Unit unit = Unit::kUnknown;
  bool is_utc = false;
  // kDecimal.
  int32_t precision = 0;
  int32_t scale = 0;
};

// A group or a leaf.
struct SchemaNode {
  std::string name;
  bool is_required = false;
  bool is_repeated = false;
  bool is_list = false;  // by a logical type or by an older annotation
  bool is_map = false;
  int num_fields = 0;  // of a group
};

struct SchemaLeaf {
  std::vector<SchemaNode> path;  // from the one below the root to the leaf
  PhysicalType physical = PhysicalType::kUnknown;
  int32_t type_length = 0;  // of kFixedBytes
  LogicalType logical = {};
  int16_t max_definition_level = 0;
  int16_t max_repetition_level = 0;
  int32_t field_id = -1;  // -1: none

  std::string DotPath() const {
    std::string text;
    for (const SchemaNode& node : path) text += (text.empty() ? "" : ".") + node.name;
    return text;
  }
};

struct RowGroupFacts {
  int64_t num_rows = 0;
  int num_columns = 0;
};

// The part of a column chunk's entry that is kept for each column chunk of many files.
struct ChunkPlace {
  int64_t data_page_offset = 0;
  int64_t dictionary_page_offset = 0;  // 0: none
  int64_t compressed_bytes = 0;        // of all pages, with their headers
  int64_t uncompressed_bytes = 0;
  int64_t num_values = 0;  // with nulls and empty lists
  // As a scan of the footer found them; 0 bytes: none, or not known.
  int64_t offset_index_offset = 0;
  int32_t offset_index_bytes = 0;
  int32_t codec = Codec::kUnknown;

  bool operator==(const ChunkPlace&) const = default;
};

struct ChunkFacts : ChunkPlace {
  // Of strings, with dictionaries resolved, where the writer says so.
  std::optional<int64_t> string_bytes = std::nullopt;
  bool is_encrypted = false;
  std::string file_path = {};  // of the file that has the pages; empty: this one

  // The bytes of the values, decompressed, to estimate. Some writers give 0 or the
  // compressed size for the decompressed one.
  int64_t value_bytes() const {
    const int64_t larger = std::max(uncompressed_bytes, compressed_bytes);
    return std::max<int64_t>(string_bytes.value_or(larger), 0);
  }
};

struct FooterFacts {
  int64_t num_bytes = 0;  // of the footer
  int64_t num_rows = 0;
  int64_t num_schema_elements = 0;
  bool has_encrypted_parts = false;
  // parquet-mr before 1.2.9 left the dictionary page's header out of the size.
  bool has_short_chunk_sizes = false;
  // Arrow before 3.0 wrote V2 pages that wrongly deny that they are compressed.
  bool has_wrong_compressed_flags = false;
  std::string arrow_schema = {};  // in base64; empty where there is none
  std::vector<RowGroupFacts> row_groups = {};
  std::vector<SchemaLeaf> leaves = {};
};

}  // namespace torchparquet
