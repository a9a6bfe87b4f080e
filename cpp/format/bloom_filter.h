#pragma once

#include <cstdint>
#include <optional>
#include <span>

namespace torchparquet {

// The bytes of a Bloom filter with its header, by the header at the start of `bytes`.
// Nothing for a header that does not end there, and for other filters than the format's
// one kind.
std::optional<int64_t> BloomFilterBytes(std::span<const uint8_t> bytes);

// True if a value of that encoding, PLAIN without a length, may be among those of the
// column chunk. `filter` has as many bytes as BloomFilterBytes says.
// Source: parquet-format, BloomFilter.md: split block Bloom filters, XXH64.
bool MayHold(std::span<const uint8_t> filter, std::span<const uint8_t> value);

}  // namespace torchparquet
