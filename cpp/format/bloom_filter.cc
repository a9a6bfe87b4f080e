#include "format/bloom_filter.h"

#include <array>
#include <cstddef>
#include <cstring>

#include "format/thrift_compact.h"
#include "kernels/xxhash64.h"

namespace torchparquet {
namespace {

constexpr size_t kWords = 8;  // of 32 bits, in a block
constexpr int64_t kBlockBytes = 32;
constexpr std::array<uint32_t, kWords> kSalts = {0x47b6137b, 0x44974d91, 0x8824ad5b,
                                                 0xa2b7289d, 0x705495c7, 0x2df1424b,
                                                 0x9efc4947, 0x5c6bfb31};

struct Filter {
  int64_t header_bytes = 0;
  int64_t num_bytes = 0;  // without the header
};

// A union whose first kind is set: of algorithms, hashes and compressions all that is.
bool IsFirstKind(ThriftCompactReader* reader, int type) {
  bool is_first = false;
  reader->ReadStruct(type, [&](int64_t id, int inner) {
    is_first = id == 1;
    reader->SkipField(inner);
  });
  return is_first;
}

std::optional<Filter> ReadHeader(std::span<const uint8_t> bytes) {
  ThriftCompactReader reader(bytes);
  Filter filter;
  int num_known = 0;
  const auto known = [&](int64_t id) {
    return reader.At(id, [&](int type) { num_known += IsFirstKind(&reader, type); });
  };
  if (!ThriftCompactReader::IsSound([&] {
        reader.ReadFields(reader.I32(1, &filter.num_bytes), known(2), known(3), known(4));
      })) {
    return std::nullopt;
  }
  constexpr int kKinds = 3;
  const bool is_usable =
      num_known == kKinds && filter.num_bytes > 0 && filter.num_bytes % kBlockBytes == 0;
  if (!is_usable) return std::nullopt;
  filter.header_bytes = std::ssize(bytes) - static_cast<int64_t>(reader.rest_bytes());
  return filter;
}

}  // namespace

std::optional<int64_t> BloomFilterBytes(std::span<const uint8_t> bytes) {
  const auto filter = ReadHeader(bytes);
  if (!filter) return std::nullopt;
  return filter->header_bytes + filter->num_bytes;
}

bool MayHold(std::span<const uint8_t> filter, std::span<const uint8_t> value) {
  const auto header = ReadHeader(filter);
  if (!header || header->header_bytes + header->num_bytes > std::ssize(filter)) {
    return true;
  }
  const uint64_t hash = kernels::XxHash64(value);
  const auto num_blocks = static_cast<uint64_t>(header->num_bytes / kBlockBytes);
  const uint64_t block = ((hash >> 32) * num_blocks) >> 32;
  const uint8_t* words =
      filter.data() + header->header_bytes + static_cast<int64_t>(block) * kBlockBytes;
  const auto low = static_cast<uint32_t>(hash);
  for (size_t i = 0; i < kWords; ++i) {
    uint32_t word;
    std::memcpy(&word, words + i * sizeof(word), sizeof(word));
    if ((word >> ((low * kSalts[i]) >> 27) & 1) == 0) return false;
  }
  return true;
}

}  // namespace torchparquet
