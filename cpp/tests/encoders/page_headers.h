#pragma once

#include <cstdint>

#include "pages/page_header.h"

namespace torchparquet::testing {

// Encodings, by the numbers that the format gives them.
constexpr int kPlain = 0;
constexpr int kPlainDictionary = 2;
constexpr int kDeltaLengthByteArray = 6;
constexpr int kDeltaByteArray = 7;
constexpr int kRleDictionary = 8;

inline PageHeader DataPage(int encoding, int64_t num_values) {
  PageHeader header;
  header.kind = PageHeader::Kind::kData;
  header.num_values = num_values;
  header.encoding = encoding;
  return header;
}

inline PageHeader DictionaryPage(int64_t num_values, int encoding = kPlain) {
  PageHeader header;
  header.kind = PageHeader::Kind::kDictionary;
  header.num_values = num_values;
  header.encoding = encoding;
  return header;
}

}  // namespace torchparquet::testing
