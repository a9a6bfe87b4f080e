#include <algorithm>
#include <bit>
#include <cstdint>
#include <iterator>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "encoders/level_encoder.h"
#include "exact_buffer.h"
#include "fuzz/inputs.h"
#include "fuzz/steps.h"
#include "fuzz/targets.h"
#include "kernels/bit_unpack.h"
#include "kernels/encodings/delta_groups.h"
#include "kernels/encodings/dictionary.h"
#include "kernels/encodings/dictionary_groups.h"
#include "kernels/encodings/rle_bool.h"
#include "kernels/levels/bit_packed_levels.h"
#include "kernels/levels/level_reader.h"
#include "kernels/levels/rle_bit_packed.h"

namespace torchparquet::testing {
namespace {

// The value of `width` bits from bit `begin` on, lowest bits first.
uint64_t BitsAt(std::span<const uint8_t> bytes, int64_t begin, int width) {
  uint64_t value = 0;
  for (int64_t i = 0; i < width; ++i) {
    const int bit = bytes[static_cast<size_t>((begin + i) / 8)] >> ((begin + i) % 8) & 1;
    value |= uint64_t{bit != 0} << i;
  }
  return value;
}

bool FuzzRleBitPacked(Draws& draws) {
  const auto width = static_cast<int>(draws.Between(0, 32));
  ExactBuffer<uint8_t> bytes(
      RleBitPackedInput(draws, width, RandomCount(draws), int64_t{1} << width));
  const auto claimed = static_cast<int>(draws.OneIn(9) ? draws.Between(-2, 300) : width);
  return Fails([&] {
    kernels::RleBitPackedReader reader(bytes.span(), claimed);
    kernels::RleBitPackedRun run;
    uint32_t sum = 0;
    while (reader.Next(&run)) {
      Require(run.num_values >= 0, "a negative number of values");
      if (!run.packed) continue;
      for (const uint8_t byte : run.bytes) sum += byte;
      Require(claimed == 0 ||
                  run.num_values * claimed <= 8 * static_cast<int64_t>(run.bytes.size()),
              "more packed values than bits");
      Require(run.readable_end <= bytes.span().data() + bytes.size(),
              "a readable end after the end");
    }
  });
}

// The validity that LevelReader reads.
struct ValidityRows {
  using Value = uint8_t;
  static std::vector<uint8_t> Read(kernels::LevelReader& reader, int64_t num_rows) {
    const int64_t run_rows = num_rows > 0 ? reader.ValidRun() : 0;
    ExactBuffer<uint8_t> rows(static_cast<size_t>(num_rows));
    const int64_t num_valid = reader.ReadValidity(num_rows, rows.data());
    const auto ones = std::count(rows.span().begin(), rows.span().end(), 1);
    const auto zeros = std::count(rows.span().begin(), rows.span().end(), 0);
    Require(num_valid == ones && ones + zeros == num_rows, "a wrong count of valid rows");
    Require(num_valid >= std::min(run_rows, num_rows), "a null in a run of valid rows");
    return rows.Copy();
  }
};

bool FuzzValidity(Draws& draws) {
  const auto max_level = static_cast<int>(draws.OneIn(3) ? draws.Between(1, 255) : 1);
  const int width = std::bit_width(static_cast<unsigned>(max_level));
  const int64_t num_rows = RandomCount(draws);
  const Bytes bytes = RleBitPackedInput(draws, width, num_rows + 20, max_level + 1);
  return CheckSteps<ValidityRows>(draws, num_rows, bytes, [&](const auto& exact) {
    return std::make_unique<kernels::LevelReader>(exact, max_level);
  });
}

// LevelReader, asked first how far one level goes on.
struct Levels {
  using Value = uint8_t;
  static std::vector<uint8_t> Read(kernels::LevelReader& reader, int64_t num_levels) {
    const int64_t run = num_levels > 0 ? reader.RunOf(1) : 0;
    ExactBuffer<uint8_t> levels(static_cast<size_t>(num_levels));
    reader.Read(num_levels, levels.data());
    const auto in_run =
        levels.span().first(static_cast<size_t>(std::min(run, num_levels)));
    Require(std::ranges::count(in_run, 1) == std::ssize(in_run),
            "another level in a run of one");
    return levels.Copy();
  }
};

bool FuzzLevels(Draws& draws) {
  const auto max_level =
      static_cast<int>(draws.OneIn(3) ? draws.Between(1, 255) : draws.Between(1, 7));
  const int64_t num_levels = RandomCount(draws);
  const Bytes bytes =
      RleBitPackedInput(draws, LevelWidth(max_level), num_levels + 20, max_level + 1);
  return CheckSteps<Levels>(draws, num_levels, bytes, [&](const auto& exact) {
    return std::make_unique<kernels::LevelReader>(exact, max_level);
  });
}

bool FuzzBitPackedLevels(Draws& draws) {
  const auto width = static_cast<int>(draws.Between(1, 8));
  kernels::BitPackedLevels levels{
      .bytes = {}, .width = width, .num_values = RandomCount(draws)};
  ExactBuffer<uint8_t> bytes(RandomBytes(draws, levels.NumBytes()));
  levels.bytes = bytes.span();
  ExactBuffer<uint8_t> runs(static_cast<size_t>(levels.NumRunBytes()));
  kernels::RepackLevels(levels, runs.data());
  kernels::LevelReader reader(runs.span(), (1 << width) - 1);
  ExactBuffer<uint8_t> found(static_cast<size_t>(levels.num_values));
  reader.Read(levels.num_values, found.data());
  Require(PackHighestFirst(found.Copy(), width).size() == bytes.size(),
          "another number of levels");
  // The rest of the last byte belongs to no level.
  Bytes kept = bytes.Copy();
  if (!kept.empty()) {
    const auto unused =
        static_cast<int>(8 * levels.NumBytes() - levels.num_values * width);
    kept.back() = static_cast<uint8_t>(kept.back() >> unused << unused);
  }
  Require(PackHighestFirst(found.Copy(), width) == kept, "other levels");
  return false;
}

template <typename T>
bool FuzzDictionary(Draws& draws) {
  const int64_t num_entries = draws.OneIn(10) ? 0 : draws.Between(1, 300);
  ScratchBuffer memory;
  kernels::Dictionary<T> dictionary(&memory);
  dictionary.Resize(num_entries);
  for (T& entry : dictionary.values()) entry = static_cast<T>(draws.Bits());
  const auto width = static_cast<int>(
      draws.OneIn(4)
          ? draws.Between(0, 32)
          : std::bit_width(static_cast<uint64_t>(std::max<int64_t>(num_entries, 1) - 1)));
  const int64_t num_values = RandomCount(draws);
  const Bytes bytes =
      RleBitPackedInput(draws, width, num_values + 20, std::max<int64_t>(num_entries, 1));
  using Values = FixedValues<kernels::DictionaryReader<T>, T>;
  return CheckSteps<Values>(draws, num_values, bytes, [&](const auto& exact) {
    return std::make_unique<kernels::DictionaryReader<T>>(exact, width, &dictionary);
  });
}

// Every variant against looking up value by value.
template <typename T>
bool FuzzDictionaryGroups(Draws& draws) {
  const auto width = static_cast<int>(draws.Between(0, 14));
  const int64_t num_groups = draws.Below(20);
  ExactBuffer<T> dictionary(size_t{1} << width);
  for (T& value : dictionary.span()) value = static_cast<T>(draws.Bits());
  const int64_t readable =
      num_groups > 0 ? (num_groups - 1) * width + kernels::GroupReadableBytes(width) : 0;
  ExactBuffer<uint8_t> in(RandomBytes(draws, readable));
  const int64_t limit = draws.Between(-1, (int64_t{1} << width) - 1);
  std::vector<T> expected;
  bool is_beyond = false;
  for (int64_t i = 0; i < 8 * num_groups; ++i) {
    const auto index = static_cast<int64_t>(BitsAt(in.span(), i * width, width));
    expected.push_back(dictionary.data()[index]);
    is_beyond |= index > limit;
  }
  for (const auto decode :
       {kernels::PlainDecodeGroups<T>(width), kernels::Avx2DecodeGroups<T>(width),
        kernels::ChooseDecodeGroups<T>(width)}) {
    if (decode == nullptr) continue;
    ExactBuffer<T> out(expected.size());
    Require(
        decode(in.data(), num_groups, dictionary.data(), limit, out.data()) == is_beyond,
        "an index beyond the limit that is not told, or one that is not");
    Require(out.Copy() == expected, "other values than those of the dictionary");
  }
  return is_beyond;
}

template <typename T>
bool FuzzDeltaGroups(Draws& draws) {
  const auto width = static_cast<int>(draws.Between(0, 8 * int64_t{sizeof(T)}));
  const int64_t num_groups = draws.Below(20);
  const int64_t readable =
      num_groups > 0 ? (num_groups - 1) * width + kernels::GroupReadableBytes(width) : 0;
  ExactBuffer<uint8_t> in(RandomBytes(draws, readable));
  const auto min_delta = static_cast<T>(draws.Bits());
  auto last = static_cast<T>(draws.Bits());
  ExactBuffer<T> out(static_cast<size_t>(8 * num_groups));
  const T returned = kernels::ChooseDecodeDeltas<T>(width)(in.data(), num_groups,
                                                           min_delta, last, out.data());
  for (int64_t i = 0; i < 8 * num_groups; ++i) {
    last = static_cast<T>(last + min_delta + BitsAt(in.span(), i * width, width));
    Require(out.data()[i] == last, "another sum of deltas");
  }
  Require(returned == last, "another last value");
  return false;
}

bool FuzzRleBool(Draws& draws) {
  const int64_t num_values = RandomCount(draws);
  Bytes bytes = RleBitPackedInput(draws, 1, num_values + 20, 2);
  const auto size = static_cast<uint32_t>(bytes.size());
  Bytes length;
  for (int i = 0; i < 4; ++i) length.push_back(static_cast<uint8_t>(size >> (8 * i)));
  using Values = FixedValues<kernels::RleBoolReader, uint8_t>;
  return CheckSteps<Values>(
      draws, num_values, Damaged(draws, Joined(std::move(length), bytes)),
      [](const auto& exact) { return std::make_unique<kernels::RleBoolReader>(exact); });
}

}  // namespace

std::vector<FuzzTarget> RunTargets() {
  return {
      {"rle_bit_packed", &FuzzRleBitPacked},
      {"validity", &FuzzValidity},
      {"level_reader", &FuzzLevels},
      {"bit_packed_levels", &FuzzBitPackedLevels},
      {"dictionary uint8", &FuzzDictionary<uint8_t>},
      {"dictionary uint16", &FuzzDictionary<uint16_t>},
      {"dictionary uint32", &FuzzDictionary<uint32_t>},
      {"dictionary uint64", &FuzzDictionary<uint64_t>},
      {"dictionary_groups uint8", &FuzzDictionaryGroups<uint8_t>},
      {"dictionary_groups uint16", &FuzzDictionaryGroups<uint16_t>},
      {"dictionary_groups uint32", &FuzzDictionaryGroups<uint32_t>},
      {"dictionary_groups uint64", &FuzzDictionaryGroups<uint64_t>},
      {"delta_groups uint32", &FuzzDeltaGroups<uint32_t>},
      {"delta_groups uint64", &FuzzDeltaGroups<uint64_t>},
      {"rle_bool", &FuzzRleBool},
  };
}

}  // namespace torchparquet::testing
