#pragma once

#include <cstdint>
#include <optional>
#include <span>

#include "bridge/format.h"

namespace torchparquet {

// Reads the header at the start of `bytes`. Returns nothing if it continues after them.
// Throws Error(kCorruptFile) for bytes that are no page header, a negative size, or a
// header without an encoding.
//
// Arrow's page reader makes strings of the statistics and objects of the rest, and cannot
// stop between two pages and go on elsewhere. Source: parquet-format, parquet.thrift.
std::optional<PageHeader> ParsePageHeader(std::span<const uint8_t> bytes);

}  // namespace torchparquet
