#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "base/byte_range.h"

namespace torchparquet {

// One range of one object, as it was listed.
struct BlockKey {
  std::string object;  // path, size and ETag: what tells these bytes from all others
  ByteRange range;
};

// The disk's name for a key. Guards against chance, not against people who choose
// keys to collide.
using BlockDigest = std::array<uint64_t, 2>;

BlockDigest DigestOf(const BlockKey& key);

// The name of the block's file, and the subfolder that the file is in.
std::string BlockName(const BlockDigest& digest);
std::string BlockSubfolder(const BlockDigest& digest);
// The digest whose BlockName this is.
std::optional<BlockDigest> ParseBlockName(std::string_view name);

// A block's file is a header of 64 bytes and the block: magic, version, digest, range and
// a checksum of the rest. All numbers are those of a little-endian machine.
constexpr int64_t kBlockHeaderBytes = 64;

enum class BlockState { kSound, kDamaged, kUnreadable };

// Reads the block of `key` to `out`, which has room for the range. Unless the block is
// sound, `out` then holds anything.
BlockState ReadBlock(int descriptor, const BlockKey& key, uint8_t* out);

// Fills an empty file. Returns 0, or the system's error number.
int WriteBlock(int descriptor, const BlockKey& key, std::span<const uint8_t> bytes);

// True if a file whose name is a block's may be removed: it begins as a block does, or,
// as files do after a power failure, with nothing or zeros.
bool BeginsAsBlock(int descriptor);

}  // namespace torchparquet
