#include "remote/disk_cache/block_file.h"

#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <bit>
#include <cerrno>
#include <charconv>
#include <cstring>

#include "kernels/xxhash64.h"

namespace torchparquet {
namespace {

static_assert(std::endian::native == std::endian::little);

// Read or written and hashed at a time. Stays in the processor's cache in between.
constexpr int64_t kSliceBytes = int64_t{256} << 10;
constexpr std::array<char, 8> kBlockMagic = {'t', 'p', 'q', 'b', 'l', 'o', 'c', 'k'};
constexpr uint32_t kVersion = 1;
constexpr std::string_view kSuffix = ".block";
constexpr size_t kHexDigits = 16;  // of half a digest

struct BlockHeader {
  std::array<char, 8> magic = kBlockMagic;
  uint32_t version = kVersion;
  uint32_t header_bytes = kBlockHeaderBytes;
  BlockDigest digest;
  int64_t offset;
  int64_t num_bytes;
  uint64_t reserved = 0;
  uint64_t checksum = 0;  // of all before it, and of the block
};
static_assert(sizeof(BlockHeader) == kBlockHeaderBytes);

constexpr size_t kCheckedHeaderBytes = offsetof(BlockHeader, checksum);

// The bytes of a plain struct without padding.
template <typename T>
std::span<const uint8_t> BytesOf(const T& value) {
  return {reinterpret_cast<const uint8_t*>(&value), sizeof(value)};
}

BlockHeader HeaderOf(const BlockKey& key) {
  return {.digest = DigestOf(key),
          .offset = key.range.offset,
          .num_bytes = key.range.num_bytes};
}

// The checksum of a header and the slices of its block: a chain of their hashes.
class Checksum {
 public:
  explicit Checksum(const BlockHeader& header)
      : value_(kernels::XxHash64(BytesOf(header).first(kCheckedHeaderBytes))) {}
  void Add(std::span<const uint8_t> slice) {
    const std::array<uint64_t, 2> link = {value_, kernels::XxHash64(slice)};
    value_ = kernels::XxHash64(BytesOf(link));
  }
  uint64_t value() const { return value_; }

 private:
  uint64_t value_;
};

// Returns the number of bytes up to the end of the file or a failure.
int64_t ReadUpTo(int descriptor, int64_t offset, std::span<uint8_t> out) {
  size_t num_read = 0;
  while (num_read < out.size()) {
    const ssize_t count = pread(descriptor, out.data() + num_read, out.size() - num_read,
                                offset + static_cast<int64_t>(num_read));
    if (count < 0 && errno == EINTR) continue;
    if (count <= 0) break;
    num_read += static_cast<size_t>(count);
  }
  return static_cast<int64_t>(num_read);
}

int WriteAt(int descriptor, int64_t offset, std::span<const uint8_t> bytes) {
  while (!bytes.empty()) {
    const ssize_t count = pwrite(descriptor, bytes.data(), bytes.size(), offset);
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) return errno;
    if (count == 0) return EIO;
    bytes = bytes.subspan(static_cast<size_t>(count));
    offset += count;
  }
  return 0;
}

std::string HexDigits(uint64_t value) {
  std::string digits(kHexDigits, '0');
  for (auto digit = digits.rbegin(); digit != digits.rend(); ++digit, value >>= 4) {
    *digit = "0123456789abcdef"[value & 15];
  }
  return digits;
}

std::optional<uint64_t> ParseHexDigits(std::string_view digits) {
  uint64_t value = 0;
  const auto [end, error] =
      std::from_chars(digits.data(), digits.data() + digits.size(), value, 16);
  if (error != std::errc() || end != digits.data() + digits.size()) return std::nullopt;
  return value;
}

}  // namespace

BlockDigest DigestOf(const BlockKey& key) {
  // A stripe of its own before the text makes each half a hash of its own.
  std::string text(32, '\0');
  text.append(reinterpret_cast<const char*>(&key.range.offset), sizeof(int64_t));
  text.append(reinterpret_cast<const char*>(&key.range.num_bytes), sizeof(int64_t));
  text.append(key.object);
  BlockDigest digest;
  for (size_t half = 0; half < digest.size(); ++half) {
    std::fill_n(text.begin(), 32, static_cast<char>(half + 1));
    digest[half] =
        kernels::XxHash64({reinterpret_cast<const uint8_t*>(text.data()), text.size()});
  }
  return digest;
}

std::string BlockName(const BlockDigest& digest) {
  return HexDigits(digest[0]) + HexDigits(digest[1]) + std::string(kSuffix);
}

std::string BlockSubfolder(const BlockDigest& digest) {
  return HexDigits(digest[0]).substr(0, 2);
}

std::optional<BlockDigest> ParseBlockName(std::string_view name) {
  if (name.size() != 2 * kHexDigits + kSuffix.size()) return std::nullopt;
  const auto high = ParseHexDigits(name.substr(0, kHexDigits));
  const auto low = ParseHexDigits(name.substr(kHexDigits, kHexDigits));
  if (!high || !low) return std::nullopt;
  // Written anew, so that other spellings of the digits and suffixes are not taken.
  const BlockDigest digest = {*high, *low};
  if (BlockName(digest) != name) return std::nullopt;
  return digest;
}

BlockState ReadBlock(int descriptor, const BlockKey& key, uint8_t* out) {
  const int64_t num_bytes = key.range.num_bytes;
  struct stat status{};
  if (fstat(descriptor, &status) != 0 || !S_ISREG(status.st_mode)) {
    return BlockState::kUnreadable;
  }
  if (status.st_size != kBlockHeaderBytes + num_bytes) return BlockState::kDamaged;

  const BlockHeader expected = HeaderOf(key);
  BlockHeader found = expected;
  const std::span<uint8_t> header(reinterpret_cast<uint8_t*>(&found), sizeof(found));
  if (ReadUpTo(descriptor, 0, header) != kBlockHeaderBytes)
    return BlockState::kUnreadable;
  if (std::memcmp(&found, &expected, kCheckedHeaderBytes) != 0) {
    return BlockState::kDamaged;
  }
  Checksum checksum(expected);
  for (int64_t begin = 0; begin < num_bytes; begin += kSliceBytes) {
    const int64_t count = std::min(kSliceBytes, num_bytes - begin);
    const std::span<uint8_t> slice(out + begin, static_cast<size_t>(count));
    if (ReadUpTo(descriptor, kBlockHeaderBytes + begin, slice) != count) {
      return BlockState::kUnreadable;
    }
    checksum.Add(slice);
  }
  return checksum.value() == found.checksum ? BlockState::kSound : BlockState::kDamaged;
}

int WriteBlock(int descriptor, const BlockKey& key, std::span<const uint8_t> bytes) {
  BlockHeader header = HeaderOf(key);
  Checksum checksum(header);
  // The header is written last: until then the file begins with zeros.
  int64_t offset = kBlockHeaderBytes;
  while (!bytes.empty()) {
    const auto slice = bytes.first(std::min<size_t>(kSliceBytes, bytes.size()));
    checksum.Add(slice);
    const int error = WriteAt(descriptor, offset, slice);
    if (error != 0) return error;
    bytes = bytes.subspan(slice.size());
    offset += static_cast<int64_t>(slice.size());
  }
  header.checksum = checksum.value();
  return WriteAt(descriptor, 0, BytesOf(header));
}

bool BeginsAsBlock(int descriptor) {
  std::array<uint8_t, kBlockMagic.size()> found{};
  const int64_t count = ReadUpTo(descriptor, 0, found);
  // Bytes that are not there count as zeros.
  const bool zeros = std::ranges::all_of(found, [](uint8_t byte) { return byte == 0; });
  return zeros || (count == static_cast<int64_t>(found.size()) &&
                   std::memcmp(found.data(), kBlockMagic.data(), found.size()) == 0);
}

}  // namespace torchparquet
