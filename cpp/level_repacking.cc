#include "level_repacking.h"

#include <parquet/column_reader.h>
#include <parquet/types.h>

#include <algorithm>
#include <memory>

#include "errors.h"

namespace torchparquet {

std::span<const uint8_t> RepackLevels(std::span<const uint8_t> levels, int max_level,
                                      int num_rows, ScratchBuffer* memory) {
  parquet::LevelDecoder decoder;
  const auto decoded = std::make_unique<int16_t[]>(static_cast<size_t>(num_rows));
  decoder.SetData(parquet::Encoding::BIT_PACKED, static_cast<int16_t>(max_level),
                  num_rows, levels.data(), static_cast<int32_t>(levels.size()));
  if (decoder.Decode(num_rows, decoded.get()) != num_rows) {
    throw CorruptFile("page holds fewer definition levels than rows");
  }
  constexpr size_t kHeaderBytes = 5;
  const size_t num_groups = (static_cast<size_t>(num_rows) + 7) / 8;
  uint8_t* run = memory->Reserve(kHeaderBytes + num_groups);
  const size_t header = num_groups << 1 | 1;
  for (size_t i = 0; i < kHeaderBytes; ++i) {
    const int more = i + 1 < kHeaderBytes ? 0x80 : 0;
    run[i] = static_cast<uint8_t>((header >> (7 * i) & 0x7F) | more);
  }
  std::fill_n(run + kHeaderBytes, num_groups, uint8_t{0});
  for (int row = 0; row < num_rows; ++row) {
    const int bit = (decoded[static_cast<size_t>(row)] == max_level) << (row % 8);
    run[kHeaderBytes + static_cast<size_t>(row) / 8] |= static_cast<uint8_t>(bit);
  }
  return {run, kHeaderBytes + num_groups};
}

}  // namespace torchparquet
