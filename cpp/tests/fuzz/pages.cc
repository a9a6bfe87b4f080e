#include <algorithm>
#include <cstdint>
#include <iterator>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "columns/values/item_appender.h"
#include "columns/values/vocabulary.h"
#include "encoders/level_encoder.h"
#include "encoders/page_headers.h"
#include "exact_buffer.h"
#include "fuzz/inputs.h"
#include "fuzz/steps.h"
#include "fuzz/targets.h"
#include "pages/level_blocks.h"
#include "pages/page_header.h"

namespace torchparquet::testing {
namespace {

bool FuzzPageHeader(Draws& draws) {
  ExactBuffer<uint8_t> bytes(PageHeaderInput(draws));
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

// All levels of one kind, as far as they can be read.
std::optional<std::vector<uint8_t>> AllLevels(std::span<const uint8_t> runs,
                                              int max_level, int64_t num_levels) {
  std::vector<uint8_t> levels(static_cast<size_t>(num_levels));
  if (max_level == 0) return levels;
  const bool fails = Fails([&] {
    kernels::LevelReader reader(runs, max_level);
    reader.Read(num_levels, levels.data());
  });
  if (fails) return std::nullopt;
  return levels;
}

void CheckRows(const LevelBlock& block) {
  if (block.repetition == nullptr) return;
  std::vector<int64_t> rows;
  block.ForEachRow([&](int64_t entry) { rows.push_back(entry); });
  Require(std::ssize(rows) == block.NumRows(), "another number of rows");
  for (size_t i = 0; i < rows.size(); ++i) {
    Require(block.repetition[rows[i]] == 0 &&
                block.RowBegin(static_cast<int64_t>(i)) == rows[i],
            "a row that begins elsewhere");
  }
}

bool FuzzLevelBlocks(Draws& draws) {
  const auto max_repetition = static_cast<int>(draws.Below(4));
  const auto max_definition =
      static_cast<int>(draws.Between(max_repetition, max_repetition + 4));
  const int64_t num_entries = draws.OneIn(10) ? draws.Below(5000) : RandomCount(draws);
  const auto input = [&](int max_level) {
    if (max_level == 0) return Bytes();
    return RleBitPackedInput(draws, LevelWidth(max_level), 2 * num_entries + 20,
                             max_level + 1);
  };
  ExactBuffer<uint8_t> repetition(input(max_repetition));
  ExactBuffer<uint8_t> definition(input(max_definition));
  const auto all_repetition = AllLevels(repetition.span(), max_repetition, num_entries);
  const auto all_definition = AllLevels(definition.span(), max_definition, num_entries);
  int64_t position = 0;
  const auto blocks = std::make_unique<LevelBlocks>();
  const auto check = [&](const LevelBlock& block) {
    CheckRows(block);
    if (!all_repetition || !all_definition) return;
    for (int64_t i = 0; i < block.size; ++i) {
      const auto entry = static_cast<size_t>(position + i);
      Require((block.repetition == nullptr ? 0 : block.repetition[i]) ==
                      (*all_repetition)[entry] &&
                  (block.definition == nullptr ? max_definition : block.definition[i]) ==
                      (max_definition == 0 ? 0 : (*all_definition)[entry]),
              "other levels in blocks");
    }
  };
  const bool fails = Fails([&] {
    blocks->Open({.max_repetition = max_repetition,
                  .max_definition = max_definition,
                  .repetition = repetition.span(),
                  .definition = definition.span(),
                  .num_entries = num_entries});
    while (position < num_entries) {
      const LevelBlock block = blocks->Peek();
      Require(block.size > 0 && block.size <= num_entries - position,
              "a block of nothing, or of more than the page has");
      check(block);
      const int64_t taken = draws.OneIn(3) ? draws.Between(1, block.size) : block.size;
      blocks->Take(taken);
      position += taken;
    }
    Require(blocks->Peek().size == 0, "entries after the end of the page");
  });
  Require(fails == (!all_repetition || !all_definition),
          "blocks fail where levels do not, or do not where they do");
  return fails;
}

// A page of strings and, for some, the dictionary that it points into.
struct StringPage {
  int encoding = kPlain;
  Bytes dictionary = {};
  int64_t num_entries = 0;  // of the dictionary
  Bytes values = {};
  int64_t num_values = 0;
};

StringPage RandomStringPage(Draws& draws) {
  StringPage page{.num_values = RandomCount(draws)};
  switch (draws.Below(4)) {
    case 0:
      page.values = PlainByteArrayInput(draws, page.num_values);
      break;
    case 1:
      page.encoding = kDeltaLengthByteArray;
      page.values = DeltaLengthInput(draws, page.num_values);
      break;
    case 2:
      page.encoding = kDeltaByteArray;
      page.values = DeltaByteArrayInput(draws, page.num_values);
      break;
    default: {
      page.encoding = draws.OneIn(3) ? kPlainDictionary : kRleDictionary;
      page.num_entries = draws.Below(40);
      page.dictionary = PlainByteArrayInput(draws, page.num_entries);
      const int64_t bound = std::max<int64_t>(1, page.num_entries);
      const int width = static_cast<int>(draws.OneIn(8) ? draws.Below(40) : 6);
      page.values = {static_cast<uint8_t>(width)};
      page.values = Joined(
          std::move(page.values),
          RleBitPackedInput(draws, std::min(width, 32), page.num_values + 20, bound));
    }
  }
  if (draws.OneIn(20)) page.num_entries = draws.Below(1 << 20);
  return page;
}

// Memory for the dictionary, which is read at once.
template <typename Values>
void ReadDictionaryOf(const StringPage& page, Values* values) {
  if (page.encoding != kPlainDictionary && page.encoding != kRleDictionary) return;
  ExactBuffer<uint8_t> bytes(page.dictionary);
  values->ReadDictionary(DictionaryPage(page.num_entries), bytes.span());
}

constexpr int64_t kMaxLookUpBytes = 1 << 24;
constexpr int64_t kUnknown = -1;

// Words of few letters: random strings are among them now and then.
std::shared_ptr<const Vocabulary> FewWords() {
  std::vector<std::string> words = {""};
  for (int letter = 0; letter < 256; ++letter) {
    words.emplace_back(1, static_cast<char>(letter));
  }
  static const auto vocabulary = std::make_shared<const Vocabulary>(words, kUnknown);
  return vocabulary;
}
constexpr int64_t kNumWords = 257;

// With the buffers that one column chunk's values need.
template <typename Out>
class CodesOfPage {
 public:
  CodesOfPage(const StringPage& page, std::span<const uint8_t> bytes)
      : values_(MakeCodeValues<Out>(FewWords(), kMaxLookUpBytes, &buffers_)) {
    ReadDictionaryOf(page, values_.get());
    reader_ = values_->OpenPage(DataPage(page.encoding, page.num_values), bytes);
  }
  void Read(Out* out, int64_t num_values) {
    reader_->Read(out, num_values);
    for (int64_t i = 0; i < num_values; ++i) {
      Require(out[i] < kNumWords || out[i] == static_cast<Out>(kUnknown),
              "a code that no word has");
    }
  }
  void Skip(int64_t num_values) { reader_->Skip(num_values); }

 private:
  ColumnBuffers buffers_;
  std::unique_ptr<PageValues<Out>> values_;
  std::unique_ptr<ValueReader<Out>> reader_;
};

template <typename Out>
bool FuzzVocabulary(Draws& draws) {
  const StringPage page = RandomStringPage(draws);
  return CheckSteps<FixedValues<CodesOfPage<Out>, Out>>(
      draws, page.num_values, page.values,
      [&](const auto& exact) { return std::make_unique<CodesOfPage<Out>>(page, exact); });
}

// Strings as an appender delivers them, with or without a null before each.
class AppendedStrings {
 public:
  AppendedStrings(const StringPage& page, std::span<const uint8_t> bytes, bool has_nulls)
      : appender_(&buffers_), has_nulls_(has_nulls) {
    ReadDictionaryOf(page, &appender_);
    appender_.Open(DataPage(page.encoding, page.num_values), bytes);
  }

  std::vector<std::string> Read(int64_t num_values) {
    const int64_t step = has_nulls_ ? 2 : 1;
    ExactBuffer<uint8_t> validity(static_cast<size_t>(num_values * step));
    for (size_t i = 0; i < validity.size(); ++i) validity.data()[i] = i % 2;
    ExactBuffer<int64_t> starts(validity.size());
    kernels::ByteSink sink;
    appender_.Append({.size = num_values * step,
                      .validity = has_nulls_ ? validity.data() : nullptr,
                      .num_valid = num_values},
                     &scratch_, starts.data(), &sink);
    std::vector<int64_t> ends = starts.Copy();
    ends.push_back(static_cast<int64_t>(sink.size()));
    Require(ends.front() == 0 && std::ranges::is_sorted(ends), "strings that overlap");
    std::vector<std::string> strings;
    for (size_t i = 0; i + 1 < ends.size(); ++i) {
      const auto bytes = sink.bytes().subspan(static_cast<size_t>(ends[i]),
                                              static_cast<size_t>(ends[i + 1] - ends[i]));
      if (has_nulls_ && i % 2 == 0) {
        Require(bytes.empty(), "a null with bytes");
      } else {
        strings.emplace_back(bytes.begin(), bytes.end());
      }
    }
    return strings;
  }
  void Skip(int64_t num_values) { appender_.Skip(num_values); }

 private:
  ColumnBuffers buffers_;
  DecodeScratch scratch_;
  BytesAppender appender_;
  const bool has_nulls_;
};

struct StringsOf {
  using Value = std::string;
  static std::vector<std::string> Read(AppendedStrings& strings, int64_t num_values) {
    return strings.Read(num_values);
  }
};

bool FuzzStrings(Draws& draws) {
  const StringPage page = RandomStringPage(draws);
  const bool has_nulls = draws.OneIn(2);
  return CheckSteps<StringsOf>(
      draws, page.num_values, page.values, [&](const auto& exact) {
        return std::make_unique<AppendedStrings>(page, exact, has_nulls);
      });
}

}  // namespace

std::vector<FuzzTarget> PageTargets() {
  return {
      {"page_header", &FuzzPageHeader},
      {"level_blocks", &FuzzLevelBlocks},
      {"vocabulary uint8", &FuzzVocabulary<uint8_t>},
      {"vocabulary uint16", &FuzzVocabulary<uint16_t>},
      {"vocabulary uint64", &FuzzVocabulary<uint64_t>},
      {"item_appender strings", &FuzzStrings},
  };
}

}  // namespace torchparquet::testing
