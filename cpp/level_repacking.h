#pragma once

#include <cstdint>
#include <span>

#include "scratch.h"

namespace torchparquet {

// Turns definition levels in the deprecated BIT_PACKED encoding into one packed run of
// hybrid-encoded validity bits, kept in `memory`: 1 where the level is `max_level`.
// Throws Error(kCorruptFile) when there are fewer levels than rows.
std::span<const uint8_t> RepackLevels(std::span<const uint8_t> levels, int max_level,
                                      int num_rows, ScratchBuffer* memory);

}  // namespace torchparquet
