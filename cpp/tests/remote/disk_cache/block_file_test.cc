#include "remote/disk_cache/block_file.h"

#include <doctest/doctest.h>
#include <fcntl.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <filesystem>
#include <set>
#include <string>

#include "exact_buffer.h"
#include "remote/disk_cache/cache_folder.h"
#include "remote/disk_cache/cache_setting.h"

namespace torchparquet {
namespace {

using testing::Bytes;
using testing::BytesOf;
using testing::ExactBuffer;
using testing::KeyOf;
using testing::ReadFile;
using testing::TemporaryFolder;
using testing::WriteFile;

// The file of one block.
class Setting {
 public:
  explicit Setting(int64_t num_bytes)
      : key_(KeyOf(3, num_bytes)),
        bytes_(BytesOf(3, num_bytes)),
        path_(folder_.path() / "block") {
    const FileDescriptor file(open(path_.c_str(), O_RDWR | O_CREAT | O_EXCL, 0600));
    REQUIRE(WriteBlock(file.get(), key_, bytes_) == 0);
    content_ = ReadFile(path_);
  }

  // The state that a reader of `content` under the block's name sees.
  BlockState Read(const std::string& content, const BlockKey& key) {
    WriteFile(path_, content);
    const FileDescriptor file(open(path_.c_str(), O_RDONLY));
    ExactBuffer<uint8_t> out(static_cast<size_t>(key.range.num_bytes));
    const BlockState state = ReadBlock(file.get(), key, out.data());
    if (state == BlockState::kSound) {
      CHECK(Bytes(out.data(), out.data() + key.range.num_bytes) == bytes_);
    }
    return state;
  }

  bool Begins(const std::string& content) {
    WriteFile(path_, content);
    return BeginsAsBlock(FileDescriptor(open(path_.c_str(), O_RDONLY)).get());
  }

  const BlockKey& key() const { return key_; }
  const std::string& content() const { return content_; }

 private:
  TemporaryFolder folder_;
  BlockKey key_;
  Bytes bytes_;
  std::filesystem::path path_;
  std::string content_;
};

TEST_CASE("blocks of any size come back, and bytes beyond them are not written") {
  for (const int64_t num_bytes :
       {int64_t{0}, int64_t{1}, int64_t{63}, int64_t{4096}, (int64_t{256} << 10) - 1,
        int64_t{256} << 10, (int64_t{256} << 10) + 1, int64_t{1'000'000}}) {
    Setting setting(num_bytes);
    CHECK(static_cast<int64_t>(setting.content().size()) ==
          kBlockHeaderBytes + num_bytes);
    CHECK(setting.Read(setting.content(), setting.key()) == BlockState::kSound);
  }
}

TEST_CASE("a block with any bit flipped is damaged") {
  Setting setting(100);
  for (size_t i = 0; i < setting.content().size(); ++i) {
    for (int bit = 0; bit < 8; ++bit) {
      std::string content = setting.content();
      content[i] = static_cast<char>(content[i] ^ (1 << bit));
      REQUIRE(setting.Read(content, setting.key()) == BlockState::kDamaged);
    }
  }
}

TEST_CASE("slices that change places are damage") {
  constexpr size_t kSlice = size_t{256} << 10;
  Setting setting(2 * kSlice);
  const std::string& content = setting.content();
  const std::string header = content.substr(0, kBlockHeaderBytes);
  const std::string first = content.substr(kBlockHeaderBytes, kSlice);
  const std::string second = content.substr(kBlockHeaderBytes + kSlice);
  CHECK(setting.Read(header + first + second, setting.key()) == BlockState::kSound);
  CHECK(setting.Read(header + second + first, setting.key()) == BlockState::kDamaged);
}

TEST_CASE("a block that is shorter or longer is damaged") {
  Setting setting(100);
  for (size_t size = 0; size < setting.content().size(); ++size) {
    REQUIRE(setting.Read(setting.content().substr(0, size), setting.key()) ==
            BlockState::kDamaged);
  }
  CHECK(setting.Read(setting.content() + "x", setting.key()) == BlockState::kDamaged);
}

TEST_CASE("a block of another key is damaged, even where all its bytes are sound") {
  Setting setting(100);
  BlockKey other = setting.key();
  other.object += "x";
  CHECK(setting.Read(setting.content(), other) == BlockState::kDamaged);
  other = setting.key();
  other.range.offset += 1;
  CHECK(setting.Read(setting.content(), other) == BlockState::kDamaged);
}

TEST_CASE("what is no regular file cannot be read") {
  TemporaryFolder folder;
  const FileDescriptor opened(open(folder.path().c_str(), O_RDONLY));
  uint8_t out = 0;
  CHECK(ReadBlock(opened.get(), KeyOf(0, 1), &out) == BlockState::kUnreadable);
  CHECK(ReadBlock(-1, KeyOf(0, 1), &out) == BlockState::kUnreadable);
}

TEST_CASE("only blocks, and files of nothing or zeros, begin as blocks do") {
  Setting setting(100);
  CHECK(setting.Begins(setting.content()));
  CHECK(setting.Begins(setting.content().substr(0, 8)));
  CHECK(setting.Begins(""));
  CHECK(setting.Begins(std::string(3, '\0')));
  CHECK(setting.Begins(std::string(8, '\0') + "text"));
  CHECK_FALSE(setting.Begins(setting.content().substr(0, 7)));
  CHECK_FALSE(setting.Begins("text that is no block"));
  CHECK_FALSE(setting.Begins(std::string(7, '\0') + "t"));
}

TEST_CASE("a write that fails tells the system's error") {
  const FileDescriptor file(open("/dev/full", O_WRONLY));
  REQUIRE(file);
  CHECK(WriteBlock(file.get(), KeyOf(0, 10), BytesOf(0, 10)) == ENOSPC);
}

TEST_CASE("digests differ with each part of the key, and in both halves") {
  const BlockKey key = {.object = "object", .range = {.offset = 1, .num_bytes = 2}};
  std::set<uint64_t> halves;
  for (const BlockKey& other :
       {key, BlockKey{.object = "objecu", .range = key.range},
        BlockKey{.object = "objec", .range = key.range},
        BlockKey{.object = "object", .range = {.offset = 2, .num_bytes = 2}},
        BlockKey{.object = "object", .range = {.offset = 1, .num_bytes = 1}}}) {
    for (const uint64_t half : DigestOf(other)) halves.insert(half);
  }
  CHECK(halves.size() == 10);
  CHECK(DigestOf(key) == DigestOf({.object = "object", .range = key.range}));
}

TEST_CASE("names lead back to digests, and no other name does") {
  const BlockDigest digest = {0x00ab'cdef'0123'4567, 0x89};
  const std::string name = BlockName(digest);
  CHECK(name == "00abcdef012345670000000000000089.block");
  CHECK(BlockSubfolder(digest) == "00");
  CHECK(BlockSubfolder({0xfe00'0000'0000'0000, 0}) == "fe");
  CHECK(ParseBlockName(name) == digest);
  for (const char* other :
       {"", "00ABCDEF012345670000000000000089.block",
        "00abcdef01234567000000000000008.block", "00abcdef012345670000000000000089.blocK",
        "00abcdef01234567-000000000000089.block",
        "00abcdef0123456700000000000000x9.block",
        "00abcdef012345670000000000000089.block2",
        " 0abcdef012345670000000000000089.block"}) {
    CHECK_FALSE(ParseBlockName(other));
  }
}

}  // namespace
}  // namespace torchparquet
