#include "base/errors.h"

#include <algorithm>
#include <exception>
#include <new>

namespace torchparquet {
namespace {

// Bytes of the UTF-8 sequence that begins with `first`, or 0 if none does.
size_t Utf8LengthBy(unsigned char first) {
  if (first >= 0xC2 && first <= 0xDF) return 2;
  if (first >= 0xE0 && first <= 0xEF) return 3;
  if (first >= 0xF0 && first <= 0xF4) return 4;
  return 0;
}

// True if the two bytes begin an overlong form, a surrogate or a code point beyond
// U+10FFFF.
bool IsOutsideUnicode(unsigned char first, unsigned char second) {
  switch (first) {
    case 0xE0:
      return second < 0xA0;
    case 0xED:
      return second > 0x9F;
    case 0xF0:
      return second < 0x90;
    case 0xF4:
      return second > 0x8F;
    default:
      return false;
  }
}

// Length of the well-formed UTF-8 sequence at the start of `text`, 0 if there is none.
size_t Utf8SequenceLength(std::string_view text) {
  const auto byte = [&](size_t i) { return static_cast<unsigned char>(text[i]); };
  const size_t length = Utf8LengthBy(byte(0));
  if (length == 0 || text.size() < length) return 0;
  for (size_t i = 1; i < length; ++i) {
    if ((byte(i) & 0xC0) != 0x80) return 0;
  }
  return IsOutsideUnicode(byte(0), byte(1)) ? 0 : length;
}

// True for a code point that a reader does not see, or that moves other characters:
// controls, separators, format and private characters. Unassigned code points pass.
bool IsInvisible(uint32_t code_point) {
  struct Range {
    uint32_t first;
    uint32_t last;
  };
  // Source: the Unicode Character Database, general categories Cc, Cf, Zl, Zp, Zs and Co.
  // The ranges include some unassigned code points.
  static constexpr Range kRanges[] = {
      {0x80, 0xA0},       {0xAD, 0xAD},       {0x600, 0x605},     {0x61C, 0x61C},
      {0x6DD, 0x6DD},     {0x70F, 0x70F},     {0x890, 0x891},     {0x8E2, 0x8E2},
      {0x1680, 0x1680},   {0x180E, 0x180E},   {0x2000, 0x200F},   {0x2028, 0x202F},
      {0x205F, 0x206F},   {0x3000, 0x3000},   {0xE000, 0xF8FF},   {0xFEFF, 0xFEFF},
      {0xFFF0, 0xFFFB},   {0xFFFE, 0xFFFF},   {0x110BD, 0x110BD}, {0x110CD, 0x110CD},
      {0x13430, 0x1343F}, {0x1BCA0, 0x1BCA3}, {0x1D173, 0x1D17A}, {0xE0000, 0xE00FF},
      {0xE01F0, 0x10FFFF}};
  return std::ranges::any_of(kRanges, [=](const Range& range) {
    return range.first <= code_point && code_point <= range.last;
  });
}

uint32_t CodePoint(std::string_view sequence) {
  auto code_point =
      static_cast<unsigned char>(sequence.front()) & (0x7FU >> sequence.size());
  for (const char byte : sequence.substr(1)) {
    code_point = code_point << 6 | (static_cast<unsigned char>(byte) & 0x3FU);
  }
  return code_point;
}

void AppendEscaped(unsigned char byte, std::string* out) {
  constexpr char kDigits[] = "0123456789abcdef";
  out->append("\\x");
  out->push_back(kDigits[byte >> 4]);
  out->push_back(kDigits[byte & 15]);
}

std::string Escape(std::string_view text, bool keep_utf8) {
  std::string out;
  out.reserve(text.size());
  while (!text.empty()) {
    const auto first = static_cast<unsigned char>(text.front());
    const size_t length = keep_utf8 && first >= 0x80 ? Utf8SequenceLength(text) : 0;
    if (length > 0 && !IsInvisible(CodePoint(text.substr(0, length)))) {
      out.append(text.substr(0, length));
      text.remove_prefix(length);
      continue;
    }
    if (first >= 0x20 && first < 0x7F) {
      out.push_back(text.front());
    } else if (first == '\n' || first == '\t' || first == '\r') {
      out.push_back(' ');
    } else {
      AppendEscaped(first, &out);
    }
    text.remove_prefix(1);
  }
  return out;
}

std::string Placed(std::string_view message, const ErrorPlace& place) {
  std::string out(message);
  const char* separator = ": ";
  const auto add = [&](const std::string& part) {
    out.append(separator).append(part);
    separator = ", ";
  };
  if (!place.path.empty()) add("file '" + PrintablePath(place.path) + "'");
  if (place.row_group >= 0) add("row group " + std::to_string(place.row_group));
  if (!place.column.empty()) add("column '" + PrintablePath(place.column) + "'");
  return out;
}

constexpr char kOutOfMemoryText[] = "out of memory while reading";
// Made as the library is loaded: when it is needed, there is no memory to make it.
// NOLINTNEXTLINE(bugprone-throwing-static-initialization, cert-err58-cpp)
const Error no_memory(ErrorKind::kOutOfMemory, kOutOfMemoryText);

Error PlacedError(const ErrorPlace& place) {
  try {
    throw;
  } catch (const Error& error) {
    // A reader of another's rows need not name the place once more.
    if (error.is_placed()) return error;
    return Error(error.kind(), error.what(), place).WithRow(error.row());
  } catch (const std::bad_alloc&) {
    return Error(ErrorKind::kOutOfMemory, kOutOfMemoryText, place);
  } catch (const std::exception& error) {
    // Arrow's failures during a read are about the content of the file.
    return Error(ErrorKind::kCorruptFile,
                 "cannot read Parquet data: " + Printable(error.what()), place);
  }
}

}  // namespace

std::string Printable(std::string_view text, size_t max_length) {
  std::string out = Escape(text.substr(0, max_length), /*keep_utf8=*/false);
  if (text.size() > max_length) out.append("...");
  return out;
}

bool IsUtf8(std::string_view text) {
  while (!text.empty()) {
    const bool ascii = static_cast<unsigned char>(text.front()) < 0x80;
    const size_t length = ascii ? 1 : Utf8SequenceLength(text);
    if (length == 0) return false;
    text.remove_prefix(length);
  }
  return true;
}

std::string PrintablePath(std::string_view path) {
  return Escape(path, /*keep_utf8=*/true);
}

Error::Error(ErrorKind kind, std::string_view message)
    : std::runtime_error(std::string(message)), kind_(kind) {}

Error::Error(ErrorKind kind, std::string_view message, const ErrorPlace& place)
    : std::runtime_error(Placed(message, place)),
      kind_(kind),
      is_placed_(!place.path.empty()) {}

Error Error::WithRow(int64_t row) const {
  Error error = *this;
  error.row_ = row;
  return error;
}

Error Error::WithValue(int64_t value) const {
  Error error = *this;
  error.value_ = value;
  return error;
}

Error Error::Unshared() const noexcept {
  Error error = *this;
  try {
    static_cast<std::runtime_error&>(error) = std::runtime_error(what());
  } catch (const std::bad_alloc&) {  // NOLINT(bugprone-empty-catch)
    // A shared message is told as well.
  }
  return error;
}

Error TooFewValues() {
  return CorruptFile("page holds fewer values than its header says");
}

Error ReaderClosed() { return Error(ErrorKind::kStopped, "the reader was closed"); }

Error NoThread(const std::exception& cause) {
  return Error(ErrorKind::kOutOfMemory,
               std::string("the system starts no thread: ") + cause.what());
}

Error CurrentErrorAt(const ErrorPlace& place) noexcept {
  try {
    return PlacedError(place);
  } catch (...) {
    return no_memory;  // a copy shares the text, and allocates nothing
  }
}

}  // namespace torchparquet
