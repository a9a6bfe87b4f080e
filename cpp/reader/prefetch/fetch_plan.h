#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "base/byte_range.h"
#include "remote/blocks/remote_blocks.h"

namespace torchparquet {

// The stored bytes of one column of a row group.
struct ChunkBytes {
  int64_t column = 0;  // among those that are read
  ByteRange range;
  // The parts that are read, in order, if an offset index tells; empty for all.
  std::vector<ByteRange> parts = {};
};

// Blocks of a step, and the column chunks that they are parts of.
struct StepBlocks {
  int64_t file = 0;
  std::vector<ChunkBytes> chunks;
  std::vector<WantedBlock> blocks;
};

// One request: neighbouring blocks of a file, in order.
struct PlannedFetch {
  ByteRange range;
  std::vector<WantedBlock> blocks;
};

// Requests of this size are the cheapest.
constexpr int64_t kMaxBlockBytes = int64_t{8} << 20;
// Blocks of column chunks of which only parts are read.
constexpr int64_t kPartBlockBytes = int64_t{64} << 10;
// Blocks go into one request over holes as small as this, which cost less than another
// request, as long as they add little to the whole.
constexpr int64_t kMaxHoleBytes = int64_t{1} << 20;
constexpr double kMaxWaste = 0.1;

// Cuts column chunks of one file to blocks, ordered by place. A column chunk that
// overlaps one before it, as no sound file has, is left out.
std::vector<WantedBlock> CutBlocks(std::span<const ChunkBytes> chunks,
                                   int64_t max_block_bytes = kMaxBlockBytes);

int64_t SumBytes(std::span<const WantedBlock> blocks);

// The blocks of steps that are read at once, in the order in which they are asked for.
// Steps that do not `fit` the budget together go column by column, as shuffle windows are
// read, and a single one block by block, by position in its column chunks, as slices of
// large row groups are read.
std::vector<StepBlocks> InOrder(std::vector<StepBlocks> steps, bool fit);

// How many bytes requests have. The first ones are small, so that all connections share
// the bytes that are waited for: on connections of 60 MB/s the first batch came in 0.07 s
// instead of 0.19.
struct RequestSizes {
  int64_t num_before = 0;   // requests that were made
  int64_t first_bytes = 0;  // of the first ones
  int64_t max_bytes = kMaxBlockBytes;

  // For a reader that reads so many bytes at once to begin with.
  static RequestSizes For(int64_t num_bytes, int64_t max_bytes);
  // The most bytes of a request by its number, counted after num_before.
  int64_t MaxBytes(int64_t number) const;
};

// Joins neighbouring blocks to requests of those sizes, or of one block.
std::vector<PlannedFetch> JoinBlocks(std::vector<WantedBlock> blocks,
                                     const RequestSizes& sizes);

}  // namespace torchparquet
