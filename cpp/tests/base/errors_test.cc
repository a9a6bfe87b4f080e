#include "base/errors.h"

#include <doctest/doctest.h>

#include <new>
#include <stdexcept>
#include <string>

#include "draws.h"

namespace torchparquet {
namespace {

using testing::Draws;

TEST_CASE("Printable leaves printable ASCII and escapes the rest") {
  CHECK(Printable("plain text ~!") == "plain text ~!");
  CHECK(Printable("a\nb\tc\rd") == "a b c d");
  CHECK(Printable(std::string_view("\0\x1f\x7f", 3)) == "\\x00\\x1f\\x7f");
  CHECK(Printable("\xc3\xa9") == "\\xc3\\xa9");
  CHECK(Printable("") == "");
}

TEST_CASE("Printable cuts what is too long") {
  CHECK(Printable("abcdef", 6) == "abcdef");
  CHECK(Printable("abcdefg", 6) == "abcdef...");
  CHECK(Printable(std::string(5000, 'x')).size() == 603);
}

TEST_CASE("Printable of any bytes is printable ASCII") {
  Draws draws(50);
  for (int trial = 0; trial < 200; ++trial) {
    const auto bytes = testing::RandomBytes(draws, draws.Below(100));
    const std::string text = Printable(std::string(bytes.begin(), bytes.end()));
    for (const char c : text) CHECK((c >= 0x20 && c < 0x7F));
  }
}

TEST_CASE("IsUtf8 knows well-formed text") {
  for (const char* text :
       {"", "ascii", "\xc3\xa9", "\xe2\x82\xac", "\xf0\x9f\x98\x80", "\xed\x9f\xbf",
        "\xee\x80\x80", "\xf4\x8f\xbf\xbf", "a\xc2\x80z"}) {
    CHECK(IsUtf8(text));
  }
  for (const char* text :
       {"\x80", "\xc3", "\xc0\xaf", "\xc1\xbf", "\xe0\x9f\xbf", "\xed\xa0\x80",
        "\xed\xbf\xbf", "\xf0\x8f\xbf\xbf", "\xf4\x90\x80\x80", "\xf5\x80\x80\x80",
        "\xff", "\xe2\x82", "\xe2\x28\xa1", "\xf0\x9f\x98", "ok\xfe"}) {
    CHECK_FALSE(IsUtf8(text));
  }
}

TEST_CASE("PrintablePath keeps well-formed names and is always UTF-8") {
  const std::string name =
      "/daten/gr\xc3\xb6\xc3\x9f"
      "e/\xe6\x95\xb0\xe6\x8d\xae.parquet";
  CHECK(PrintablePath(name) == name);
  CHECK(PrintablePath("a\xff"
                      "b\xc3") == "a\\xffb\\xc3");
  CHECK(PrintablePath("a\nb\x01") == "a b\\x01");
  // A control sequence's introducer, a line separator, an override of the direction of
  // text, a byte order mark, a tag.
  CHECK(PrintablePath("\u009b2J") == "\\xc2\\x9b2J");
  CHECK(PrintablePath("\u2028\u202e\ufeff") ==
        "\\xe2\\x80\\xa8\\xe2\\x80\\xae\\xef\\xbb\\xbf");
  CHECK(PrintablePath("\U000e0041") == "\\xf3\\xa0\\x81\\x81");
  CHECK(PrintablePath("\u00a1\u2010\ufffd\U0001f600") == "\u00a1\u2010\ufffd\U0001f600");
  Draws draws(51);
  for (int trial = 0; trial < 500; ++trial) {
    const auto bytes = testing::RandomBytes(draws, draws.Below(60));
    CHECK(IsUtf8(PrintablePath(std::string(bytes.begin(), bytes.end()))));
  }
}

TEST_CASE("an error names its place, as far as it is known") {
  const ErrorPlace place{.path = "/d/f\n.parquet", .row_group = 3, .column = "a.b"};
  const Error full(ErrorKind::kCorruptFile, "page is short", place);
  CHECK(std::string(full.what()) ==
        "page is short: file '/d/f .parquet', row group 3, column 'a.b'");
  CHECK(full.kind() == ErrorKind::kCorruptFile);
  const Error bare(ErrorKind::kIo, "cannot read", ErrorPlace{});
  CHECK(std::string(bare.what()) == "cannot read");
  const Error column(ErrorKind::kIo, "cannot read", {.column = "c"});
  CHECK(std::string(column.what()) == "cannot read: column 'c'");
}

template <typename Thrown>
Error Translated(const Thrown& thrown) {
  try {
    throw thrown;
  } catch (...) {
    return CurrentErrorAt({.path = "p"});
  }
}

TEST_CASE("an exception in flight becomes an error of its kind at its place") {
  const Error ours = Translated(Error(ErrorKind::kNullValue, "null"));
  CHECK(ours.kind() == ErrorKind::kNullValue);
  CHECK(std::string(ours.what()) == "null: file 'p'");
  const Error memory = Translated(std::bad_alloc());
  CHECK(memory.kind() == ErrorKind::kOutOfMemory);
  const Error other = Translated(std::runtime_error("bad\xff thing\n"));
  CHECK(other.kind() == ErrorKind::kCorruptFile);
  CHECK(std::string(other.what()) ==
        "cannot read Parquet data: bad\\xff thing : file 'p'");
}

}  // namespace
}  // namespace torchparquet
