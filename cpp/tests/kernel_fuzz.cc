// Feeds hostile bytes to the kernels, in buffers of exactly their size: values or an
// Error must come of it, whatever the steps in which they are read.
//
//   kernel_fuzz [executions] [seed] [first execution]
//
// To be built with the sanitizers, and run with ASAN_OPTIONS=max_allocation_size_mb=64 to
// find what is allocated by claims alone. What is found ends the run and says how to
// repeat it.

#include <algorithm>
#include <bit>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <iterator>
#include <memory>
#include <string>
#include <vector>

#include "draws.h"
#include "exact_buffer.h"
#include "kernels/byte_stream_split.h"
#include "kernels/conversion.h"
#include "kernels/delta_binary_packed.h"
#include "kernels/delta_byte_array.h"
#include "kernels/delta_length_byte_array.h"
#include "kernels/dictionary.h"
#include "kernels/fuzz_inputs.h"
#include "kernels/fuzz_steps.h"
#include "kernels/hybrid_runs.h"
#include "kernels/plain_byte_array.h"
#include "kernels/rle_bool.h"
#include "kernels/validity.h"
#include "page_header.h"

#if defined(__SANITIZE_ADDRESS__)
#include <sanitizer/common_interface_defs.h>
#endif

namespace torchparquet::kernels {
namespace {

using testing::ByteArrayValues;
using testing::Bytes;
using testing::CheckSteps;
using testing::Draws;
using testing::ExactBuffer;
using testing::Fails;
using testing::FixedValues;
using testing::Require;

// Beyond the sizes of all blocks that kernels read by.
int64_t RandomCount(Draws& draws) {
  return draws.OneIn(8) ? draws.Below(1300) : draws.Below(140);
}

// Each execution returns whether its bytes were refused.

bool FuzzHybridRuns(Draws& draws) {
  const auto width = static_cast<int>(draws.Between(0, 32));
  ExactBuffer<uint8_t> bytes(
      testing::HybridInput(draws, width, RandomCount(draws), int64_t{1} << width));
  const auto claimed = static_cast<int>(draws.OneIn(9) ? draws.Between(-2, 300) : width);
  return Fails([&] {
    HybridRunReader reader(bytes.span(), claimed);
    HybridRun run;
    uint32_t sum = 0;
    while (reader.Next(&run)) {
      Require(run.num_values >= 0, "a negative number of values");
      if (!run.packed) continue;
      for (const uint8_t byte : run.bytes) sum += byte;
      Require(claimed == 0 ||
                  run.num_values * claimed <= 8 * static_cast<int64_t>(run.bytes.size()),
              "more packed values than bits");
      Require(run.readable_end <= bytes.span().data() + bytes.size(),
              "a readable end behind the end");
    }
  });
}

// ValidityReader, whose rows are values of one byte.
struct ValidityRows {
  using Value = uint8_t;
  static std::vector<uint8_t> Read(ValidityReader& reader, int64_t num_rows) {
    const int64_t run_rows = num_rows > 0 ? reader.ValidRunRows() : 0;
    ExactBuffer<uint8_t> rows(static_cast<size_t>(num_rows));
    const int64_t num_valid = reader.Read(num_rows, rows.data());
    const auto ones = std::count(rows.span().begin(), rows.span().end(), 1);
    const auto zeros = std::count(rows.span().begin(), rows.span().end(), 0);
    Require(num_valid == ones && ones + zeros == num_rows, "a wrong count of valid rows");
    Require(num_valid >= std::min(run_rows, num_rows), "a null in a run of valid rows");
    return rows.Copy();
  }
};

bool FuzzValidity(Draws& draws) {
  const auto max_level = static_cast<int>(draws.OneIn(3) ? draws.Between(1, 300) : 1);
  const int width = std::bit_width(static_cast<unsigned>(max_level));
  const int64_t num_rows = RandomCount(draws);
  const Bytes bytes = testing::HybridInput(draws, width, num_rows + 20, max_level + 1);
  return CheckSteps<ValidityRows>(draws, num_rows, bytes, [&](const auto& exact) {
    return std::make_unique<ValidityReader>(exact, max_level);
  });
}

template <typename T>
bool FuzzDictionary(Draws& draws) {
  const int64_t num_entries = draws.OneIn(10) ? 0 : draws.Between(1, 300);
  ScratchBuffer memory;
  Dictionary<T> dictionary(&memory);
  dictionary.Resize(num_entries);
  for (T& entry : dictionary.values()) entry = static_cast<T>(draws.Bits());
  const auto width = static_cast<int>(
      draws.OneIn(4)
          ? draws.Between(0, 32)
          : std::bit_width(static_cast<uint64_t>(std::max<int64_t>(num_entries, 1) - 1)));
  const int64_t num_values = RandomCount(draws);
  const Bytes bytes = testing::HybridInput(draws, width, num_values + 20,
                                           std::max<int64_t>(num_entries, 1));
  using Values = FixedValues<DictionaryReader<T>, T>;
  return CheckSteps<Values>(draws, num_values, bytes, [&](const auto& exact) {
    return std::make_unique<DictionaryReader<T>>(exact, width, &dictionary);
  });
}

bool FuzzRleBool(Draws& draws) {
  const int64_t num_values = RandomCount(draws);
  Bytes bytes = testing::HybridInput(draws, 1, num_values + 20, 2);
  const auto size = static_cast<uint32_t>(bytes.size());
  Bytes length;
  for (int i = 0; i < 4; ++i) length.push_back(static_cast<uint8_t>(size >> (8 * i)));
  using Values = FixedValues<RleBoolReader, uint8_t>;
  return CheckSteps<Values>(
      draws, num_values,
      testing::Damaged(draws, testing::Joined(std::move(length), bytes)),
      [](const auto& exact) { return std::make_unique<RleBoolReader>(exact); });
}

template <typename T>
bool FuzzDelta(Draws& draws) {
  const int64_t num_values = RandomCount(draws);
  const Bytes bytes = testing::Damaged(
      draws, testing::DeltaInput(draws, testing::RandomSteps<T>(draws, num_values)));
  const bool is_refused = Fails([&] {
    ExactBuffer<uint8_t> exact(bytes);
    DeltaBinaryPackedReader<T> reader(exact.span());
    if (reader.num_values() > 5000) return;
    reader.Skip(reader.num_values());
    Require(reader.Rest().size() <= exact.size(), "more bytes left than there were");
    DeltaBinaryPackedReader<T> same = reader;
    T more;
    Require(Fails([&] { reader.Skip(1); }) && Fails([&] { same.Read(&more, 1); }),
            "more values than the header says");
  });
  using Values = FixedValues<DeltaBinaryPackedReader<T>, T>;
  return CheckSteps<Values>(draws, num_values, bytes,
                            [](const auto& exact) {
                              return std::make_unique<DeltaBinaryPackedReader<T>>(exact);
                            }) ||
         is_refused;
}

bool FuzzByteStreamSplit(Draws& draws) {
  const auto width = static_cast<int>(draws.OneIn(2) ? 1 << draws.Below(4)  //
                                                     : draws.Between(1, 20));
  const int64_t stride = RandomCount(draws);
  ExactBuffer<uint8_t> bytes(testing::RandomBytes(draws, width * stride));
  const int64_t begin = draws.Between(0, stride);
  const int64_t num_values = draws.Between(0, stride - begin);
  ExactBuffer<uint8_t> out(static_cast<size_t>(num_values * width));
  DecodeByteStreamSplit({.first = bytes.data() + begin, .stride = stride, .width = width},
                        num_values, out.data());
  for (int64_t i = 0; i < num_values * width; ++i) {
    const uint8_t stored = bytes.data()[i % width * stride + begin + i / width];
    Require(out.data()[i] == stored, "a byte of another value");
  }
  return false;
}

// What the page header says, and what is asked for, may differ from what the page holds.
int64_t ClaimedValues(Draws& draws, int64_t num_values) {
  return draws.OneIn(8) ? draws.Below(20'000) : num_values;
}
int64_t WantedValues(Draws& draws, int64_t num_values) {
  return draws.OneIn(8) ? num_values + 2 : num_values;
}

bool FuzzPlainByteArray(Draws& draws) {
  const int64_t num_values = RandomCount(draws);
  const Bytes bytes = testing::PlainByteArrayInput(draws, num_values);
  return CheckSteps<ByteArrayValues>(
      draws, WantedValues(draws, num_values), bytes,
      [](const auto& exact) { return std::make_unique<PlainByteArrayReader>(exact); });
}

template <typename Reader>
bool FuzzDeltaByteArrays(Draws& draws, const Bytes& bytes, int64_t num_values) {
  const int64_t claimed = ClaimedValues(draws, num_values);
  return CheckSteps<ByteArrayValues>(
      draws, WantedValues(draws, num_values), bytes,
      [&](const auto& exact) { return std::make_unique<Reader>(exact, claimed); });
}

bool FuzzDeltaLength(Draws& draws) {
  const int64_t num_values = RandomCount(draws);
  const Bytes input = testing::DeltaLengthInput(draws, num_values);
  return FuzzDeltaByteArrays<DeltaLengthByteArrayReader>(draws, input, num_values);
}

bool FuzzDeltaByteArray(Draws& draws) {
  const int64_t num_values = RandomCount(draws);
  const Bytes input = testing::DeltaByteArrayInput(draws, num_values);
  return FuzzDeltaByteArrays<DeltaByteArrayReader>(draws, input, num_values);
}

bool FuzzPageHeader(Draws& draws) {
  ExactBuffer<uint8_t> bytes(testing::PageHeaderInput(draws));
  return Fails([&] {
    const auto header = ParsePageHeader(bytes.span());
    if (!header) return;
    const auto size = static_cast<size_t>(header->header_bytes);
    Require(size <= bytes.size(), "a header longer than its bytes");
    Require(header->compressed_bytes >= 0 && header->uncompressed_bytes >= 0 &&
                (!header->is_data() || header->num_values >= 0),
            "a negative figure");
    ExactBuffer<uint8_t> exact(bytes.span().first(size));
    const auto same = ParsePageHeader(exact.span());
    Require(same && same->header_bytes == header->header_bytes, "what follows matters");
    ExactBuffer<uint8_t> cut(bytes.span().first(size - 1));
    Require(!ParsePageHeader(cut.span()), "a header that is cut short");
  });
}

// A form of values in any of its sizes.
StoredType RandomStoredType(Draws& draws) {
  constexpr StoredType kTypes[] = {
      {Stored::kBool, 1},         {Stored::kInt8, 4},        {Stored::kUInt8, 4},
      {Stored::kInt16, 4},        {Stored::kUInt16, 4},      {Stored::kInt32, 4},
      {Stored::kUInt32, 4},       {Stored::kInt64, 8},       {Stored::kUInt64, 8},
      {Stored::kInt96, 12},       {Stored::kFloat16, 2},     {Stored::kFloat32, 4},
      {Stored::kFloat64, 8},      {Stored::kDecimal32, 4},   {Stored::kDecimal64, 8},
      {Stored::kDecimalBytes, 5}, {Stored::kDecimal128, 16}, {Stored::kFixedBytes, 9}};
  StoredType type = kTypes[draws.Below(std::ssize(kTypes))];
  if (type.stored == Stored::kDecimalBytes) {
    type.num_bytes = static_cast<int32_t>(draws.Between(1, 16));
  }
  type.scale = static_cast<int32_t>(draws.Below(39));
  return type;
}

bool FuzzConversion(Draws& draws) {
  const StoredType type = RandomStoredType(draws);
  const auto dtype = static_cast<Dtype>(draws.Below(kNumDtypes));
  const auto conversion = Conversion::Find(type, dtype);
  if (!conversion) return false;
  const int64_t num_values = draws.Below(40);
  Bytes stored = testing::RandomBytes(draws, num_values * type.num_bytes);
  const int64_t legal = type.stored == Stored::kBool ? 2 : 256;
  const bool is_small = draws.OneIn(2);
  for (uint8_t& byte : stored) {
    byte = static_cast<uint8_t>(is_small && draws.OneIn(2) ? 0 : byte % legal);
  }
  ExactBuffer<uint8_t> in(stored);
  const int64_t cell = type.stored == Stored::kFixedBytes ? type.num_bytes : 1;
  ExactBuffer<uint8_t> out(
      static_cast<size_t>(num_values * cell * conversion->out_bytes()));
  return Fails([&] { conversion->Convert(in.data(), num_values, out.data()); },
               ErrorKind::kCast);
}

struct Target {
  const char* name;
  bool (*run)(Draws& draws);
  int64_t num_executions = 0;
  int64_t num_refused = 0;
};

// One line for each kernel that reads what stands in a file.
Target targets[] = {
    {"hybrid_runs", &FuzzHybridRuns},
    {"validity", &FuzzValidity},
    {"dictionary uint8", &FuzzDictionary<uint8_t>},
    {"dictionary uint16", &FuzzDictionary<uint16_t>},
    {"dictionary uint32", &FuzzDictionary<uint32_t>},
    {"dictionary uint64", &FuzzDictionary<uint64_t>},
    {"rle_bool", &FuzzRleBool},
    {"delta_binary_packed uint32", &FuzzDelta<uint32_t>},
    {"delta_binary_packed uint64", &FuzzDelta<uint64_t>},
    {"byte_stream_split", &FuzzByteStreamSplit},
    {"plain_byte_array", &FuzzPlainByteArray},
    {"delta_length_byte_array", &FuzzDeltaLength},
    {"delta_byte_array", &FuzzDeltaByteArray},
    {"page_header", &FuzzPageHeader},
    {"conversion", &FuzzConversion},
};

// What is running, for whoever ends the process.
struct {
  const char* target = "";
  uint64_t seed = 0;
  int64_t execution = 0;
} current;

void SayCurrent() {
  std::fprintf(stderr, "found in %s; repeat by: kernel_fuzz 1 %llu %lld\n",
               current.target, static_cast<unsigned long long>(current.seed),
               static_cast<long long>(current.execution));
}

// Returns whether the kernel kept its contract.
bool RunOne(uint64_t seed, int64_t execution) {
  // Far apart for each seed, and each execution a state of its own.
  Draws draws(seed * 0x9E3779B97F4A7C15 + static_cast<uint64_t>(execution));
  Target& target = targets[draws.Below(std::ssize(targets))];
  current = {target.name, seed, execution};
  ++target.num_executions;
  try {
    target.num_refused += target.run(draws);
    return true;
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s\n", error.what());
    SayCurrent();
    return false;
  }
}

int Run(int64_t num_executions, uint64_t seed, int64_t first) {
#if defined(__SANITIZE_ADDRESS__)
  __sanitizer_set_death_callback(&SayCurrent);
#endif
  for (int64_t i = first; i < first + num_executions; ++i) {
    if (!RunOne(seed, i)) return 1;
  }
  for (const Target& target : targets) {
    std::printf("%-28s %10lld executions, %10lld refused\n", target.name,
                static_cast<long long>(target.num_executions),
                static_cast<long long>(target.num_refused));
  }
  return 0;
}

}  // namespace
}  // namespace torchparquet::kernels

int main(int argc, char** argv) {
  const auto argument = [&](int index, int64_t otherwise) -> int64_t {
    return argc > index ? std::strtoll(argv[index], nullptr, 10) : otherwise;
  };
  return torchparquet::kernels::Run(
      argument(1, 20'000), static_cast<uint64_t>(argument(2, 1)), argument(3, 0));
}
