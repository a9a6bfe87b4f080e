#include "format/source.h"

#include <doctest/doctest.h>
#include <unistd.h>

#include <cstring>
#include <filesystem>
#include <fstream>
#include <memory>
#include <string>
#include <vector>

#include "caught.h"
#include "draws.h"
#include "exact_buffer.h"

namespace torchparquet {
namespace {

using testing::Caught;
using testing::Draws;
using testing::ExactBuffer;
using testing::Mentions;
using testing::Throws;
using Bytes = std::vector<uint8_t>;

constexpr int64_t kFileBytes = 10'000;

// The same bytes on disk and in memory.
class Setting {
 public:
  explicit Setting(int64_t num_bytes = kFileBytes) {
    Draws draws(7);
    bytes_ = testing::RandomBytes(draws, num_bytes);
    std::string name =
        (std::filesystem::temp_directory_path() / "torchparquet-XXXXXX").string();
    const int descriptor = mkstemp(name.data());
    REQUIRE(descriptor >= 0);
    close(descriptor);
    path_ = name;
    std::ofstream(path_, std::ios::binary)
        .write(reinterpret_cast<const char*>(bytes_.data()), num_bytes);
  }
  ~Setting() { std::filesystem::remove(path_); }
  Setting(const Setting&) = delete;
  Setting& operator=(const Setting&) = delete;

  std::vector<std::unique_ptr<const Source>> Open(const FileIdentity& expected) const {
    std::vector<std::unique_ptr<const Source>> sources;
    sources.push_back(std::make_unique<LocalFile>(path_, expected));
    sources.push_back(std::make_unique<MemoryFile>("<buffer>", bytes_, expected));
    return sources;
  }

  const Bytes& bytes() const { return bytes_; }
  const std::string& path() const { return path_; }

 private:
  Bytes bytes_;
  std::string path_;
};

TEST_CASE("any range within the file is its bytes, and nothing else is written") {
  const Setting setting;
  for (const auto& source : setting.Open({})) {
    CHECK(source->num_bytes() == kFileBytes);
    Draws draws(1);
    for (int i = 0; i < 300; ++i) {
      const int64_t offset = draws.Between(0, kFileBytes);
      const int64_t num_bytes =
          draws.OneIn(4) ? kFileBytes - offset : draws.Between(0, kFileBytes - offset);
      ExactBuffer<uint8_t> out(static_cast<size_t>(num_bytes));
      source->ReadAt(offset, num_bytes, out.data());
      REQUIRE(std::memcmp(out.data(), setting.bytes().data() + offset,
                          static_cast<size_t>(num_bytes)) == 0);
    }
  }
}

TEST_CASE("what lies outside the file is an error, the same for each kind of source") {
  const Setting setting;
  const auto sources = setting.Open({});
  const int64_t ranges[][2] = {{kFileBytes - 10, 11},
                               {kFileBytes, 1},
                               {kFileBytes + 5, 3},
                               {0, kFileBytes + 1},
                               {int64_t{1} << 40, 100}};
  for (const auto& [offset, num_bytes] : ranges) {
    Bytes out(static_cast<size_t>(num_bytes));
    std::vector<std::string> messages;
    for (const auto& source : sources) {
      const auto error = Caught([&] { source->ReadAt(offset, num_bytes, out.data()); });
      REQUIRE(error);
      CHECK(error->kind() == ErrorKind::kCorruptFile);
      messages.emplace_back(error->what());
    }
    CHECK(messages[0] == messages[1]);
  }
  Bytes out(4);
  for (const auto& source : sources) {
    CHECK(Throws(ErrorKind::kIo, [&] { source->ReadAt(-1, 4, out.data()); }));
    source->ReadAt(kFileBytes, 0, out.data());
  }
}

TEST_CASE("a file without bytes can be opened, and no byte of it read") {
  const Setting setting(0);
  uint8_t out = 0;
  for (const auto& source : setting.Open({.num_bytes = 0})) {
    CHECK(source->num_bytes() == 0);
    source->ReadAt(0, 0, &out);
    CHECK(Throws(ErrorKind::kCorruptFile, [&] { source->ReadAt(0, 1, &out); }));
  }
}

TEST_CASE("another size than the planned one is an error that names both") {
  const Setting setting;
  for (const auto& source : setting.Open({.num_bytes = kFileBytes})) {
    CHECK(source->identity().num_bytes == kFileBytes);
  }
  const auto error =
      Caught([&] { MemoryFile("<buffer>", setting.bytes(), {.num_bytes = 9999}); });
  REQUIRE(error);
  CHECK(error->kind() == ErrorKind::kChanged);
  CHECK(Mentions(*error, "10000 bytes now, 9999 then"));
}

TEST_CASE("sources know what messages call them, and when they were written") {
  const Setting setting;
  const auto sources = setting.Open({});
  CHECK(sources[0]->path() == setting.path());
  CHECK(sources[0]->identity().mtime_ns > 0);
  CHECK(sources[1]->path() == "<buffer>");
  CHECK(sources[1]->identity().mtime_ns == -1);
}

}  // namespace
}  // namespace torchparquet
