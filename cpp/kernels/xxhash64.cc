#include "kernels/xxhash64.h"

#include <array>
#include <bit>
#include <cstring>

namespace torchparquet::kernels {
namespace {

constexpr uint64_t kPrime1 = 0x9E3779B185EBCA87;
constexpr uint64_t kPrime2 = 0xC2B2AE3D27D4EB4F;
constexpr uint64_t kPrime3 = 0x165667B19E3779F9;
constexpr uint64_t kPrime4 = 0x85EBCA77C2B2AE63;
constexpr uint64_t kPrime5 = 0x27D4EB2F165667C5;

template <typename T>
uint64_t Load(std::span<const uint8_t> bytes) {
  T value;
  std::memcpy(&value, bytes.data(), sizeof(value));
  return value;
}

uint64_t Round(uint64_t lane, uint64_t word) {
  return std::rotl(lane + word * kPrime2, 31) * kPrime1;
}

// Takes stripes of four words off the front.
uint64_t HashStripes(std::span<const uint8_t>* bytes, uint64_t seed) {
  constexpr size_t kStripe = 32;
  if (bytes->size() < kStripe) return seed + kPrime5;
  std::array<uint64_t, 4> lanes = {seed + kPrime1 + kPrime2, seed + kPrime2, seed,
                                   seed - kPrime1};
  for (; bytes->size() >= kStripe; *bytes = bytes->subspan(kStripe)) {
    for (size_t i = 0; i < 4; ++i) {
      lanes[i] = Round(lanes[i], Load<uint64_t>(bytes->subspan(8 * i)));
    }
  }
  uint64_t hash = std::rotl(lanes[0], 1) + std::rotl(lanes[1], 7) +
                  std::rotl(lanes[2], 12) + std::rotl(lanes[3], 18);
  for (const uint64_t lane : lanes) hash = (hash ^ Round(0, lane)) * kPrime1 + kPrime4;
  return hash;
}

}  // namespace

uint64_t XxHash64(std::span<const uint8_t> bytes, uint64_t seed) {
  const size_t num_bytes = bytes.size();
  uint64_t hash = HashStripes(&bytes, seed) + num_bytes;
  for (; bytes.size() >= 8; bytes = bytes.subspan(8)) {
    hash = std::rotl(hash ^ Round(0, Load<uint64_t>(bytes)), 27) * kPrime1 + kPrime4;
  }
  if (bytes.size() >= 4) {
    hash = std::rotl(hash ^ Load<uint32_t>(bytes) * kPrime1, 23) * kPrime2 + kPrime3;
    bytes = bytes.subspan(4);
  }
  for (const uint8_t byte : bytes) hash = std::rotl(hash ^ byte * kPrime5, 11) * kPrime1;
  hash = (hash ^ hash >> 33) * kPrime2;
  hash = (hash ^ hash >> 29) * kPrime3;
  return hash ^ hash >> 32;
}

}  // namespace torchparquet::kernels
