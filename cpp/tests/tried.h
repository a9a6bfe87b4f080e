#pragma once

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <initializer_list>
#include <span>
#include <vector>

#include "split_mix.h"

// A test tries all that it names, once. Under schedules that seeds draw it runs a
// thousand times (see seeded_schedule.cc): each time it then tries a part, which the seed
// draws too.
namespace torchparquet::testing {

// The number of the schedule, and one more; 0 without a schedule.
inline uint64_t ScheduleSeed() {
  const char* const setting = std::getenv("TORCHPARQUET_SCHEDULE");
  return setting == nullptr ? 0 : std::strtoull(setting, nullptr, 10) + 1;
}

template <typename T>
std::vector<T> Tried(std::span<const T> all) {
  if (ScheduleSeed() == 0) return {all.begin(), all.end()};
  static SplitMix64 words(ScheduleSeed());
  return {all[words.Next() % all.size()]};
}
template <typename T>
std::vector<T> Tried(std::initializer_list<T> all) {
  return Tried(std::span<const T>(all.begin(), all.size()));
}
template <typename T, size_t N>
std::vector<T> Tried(const T (&all)[N]) {
  return Tried(std::span<const T>(all));
}

// Of parts that are tried at once, every eleventh: a prime, so that it falls in with no
// period of them.
template <typename T>
std::vector<T> SomeTried(const std::vector<T>& all) {
  if (ScheduleSeed() == 0) return all;
  std::vector<T> some;
  for (size_t i = ScheduleSeed() % 11; i < all.size(); i += 11) some.push_back(all[i]);
  return some;
}

// Trials that differ by draws, and the seed of these draws.
inline int64_t NumTried(int64_t all) {
  return ScheduleSeed() == 0 ? all : std::max<int64_t>(1, all / 10);
}
inline uint64_t SeedTried(uint64_t seed) { return seed + ScheduleSeed(); }

}  // namespace torchparquet::testing
