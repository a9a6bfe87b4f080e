#pragma once

#include <cstdint>
#include <span>

namespace torchparquet {

// Has the system begin to read the pages of mapped files that are needed soon: range i is
// `num_bytes[i]` from `addresses[i]` on. Reads from a disk are then in flight all at
// once, where page faults come one by one. Does nothing if the first pages of a few
// ranges are in memory, as asking for all would cost more than copying them. Only advice:
// it never fails.
void ReadAhead(std::span<const uint64_t> addresses, std::span<const int64_t> num_bytes);

}  // namespace torchparquet
